package control

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/healthcheck/httpbound"
)

// ErrRunning means that another daemon owns the socket.
var ErrRunning = errors.New("another edgeway daemon is running")

const lockSuffix = ".lock"

// socket holds the bound socket and the lock that proves that this process owns it.
type socket struct {
	net.Listener
	path string
	lock *os.File
}

// bind creates a socket that only its owner and its group can use, and replaces the socket of a dead daemon.
//
// If two daemons start at the same time, a lock file next to the socket decides which daemon can continue. The kernel
// releases the lock when the process exits. bind creates the socket in a private directory, sets the socket's mode, and
// then moves the socket to path. Other users therefore cannot connect before bind has set the mode. The socket's group
// is the group of the process.
func bind(path string) (*socket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	lock, err := acquire(path+lockSuffix, os.O_CREATE)
	if err != nil {
		return nil, err
	}
	listener, err := listen(path)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("control socket: %w", err)
	}
	return &socket{listener, path, lock}, nil
}

// lockDir is the directory that holds one lock file for each network namespace. Only root and the owner of lockDir can
// create files in it. An abstract socket would not work as a lock, because any user could bind it.
const lockDir = "/run/edgeway"

// LockNamespace locks the process's network namespace, because two daemons with different sockets would keep
// overwriting each other's rules. LockNamespace returns ErrRunning if another daemon holds the lock. If the process
// cannot use lockDir, for example when it runs in a custom systemd unit, LockNamespace takes no lock.
func LockNamespace() (io.Closer, error) { return lockNamespace(os.O_CREATE) }

func lockNamespace(flags int) (io.Closer, error) {
	var ns unix.Stat_t
	_ = unix.Stat("/proc/self/ns/net", &ns)
	if ns.Ino == 0 { // /proc is not mounted, for example in a chroot
		return io.NopCloser(nil), nil
	}
	if flags&os.O_CREATE != 0 {
		_ = os.MkdirAll(lockDir, 0o755) // after an error, acquire fails
	}
	path := filepath.Join(lockDir, fmt.Sprintf("netns-%d%s", ns.Ino, lockSuffix))
	lock, err := acquire(path, flags)
	if errors.Is(err, ErrRunning) {
		return nil, fmt.Errorf("%w in this network namespace (to find the process, run: lslocks | grep %s)", ErrRunning,
			filepath.Base(path))
	}
	if lock == nil { // acquire could not create or open the file
		return io.NopCloser(nil), nil
	}
	var folder unix.Stat_t
	if os.Geteuid() == 0 && unix.Stat(lockDir, &folder) == nil { // the daemon's user must be able to open the file
		_ = lock.Chown(int(folder.Uid), int(folder.Gid))
	}
	return lock, nil
}

// Close removes the socket and releases the lock. The lock file remains, because two daemons could otherwise lock two
// different files with the same name.
func (s *socket) Close() error {
	return errors.Join(s.Listener.Close(), os.Remove(s.path), s.lock.Close())
}

// LockOut prevents daemons from starting with this socket or in this network namespace until the caller calls release.
// LockOut returns ErrRunning while a daemon holds one of the locks. A suspended or hung daemon does not respond, but
// holds its lock until it exits. LockOut does not create a missing lock file, because the daemon's user could not lock
// a file that root owns.
func LockOut(path string) (release func(), err error) {
	lock, err := acquire(path+lockSuffix, 0)
	switch {
	case errors.Is(err, os.ErrNotExist):
		lock = nil // Close accepts a nil file
	case errors.Is(err, ErrRunning):
		if pid := listenerPID(path); pid != 0 {
			err = fmt.Errorf("%w (process %d)", err, pid)
		}
		return nil, err
	case err != nil:
		return nil, err
	}
	namespace, err := lockNamespace(0)
	if err != nil {
		lock.Close()
		return nil, err
	}
	return func() {
		namespace.Close()
		lock.Close()
	}, nil
}

// listenerPID returns the ID of the process that listens on a socket, or 0 if the ID is unknown. listenerPID works even
// if the process does not respond.
func listenerPID(path string) int {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return 0
	}
	defer conn.Close()
	peer, err := httpbound.Peer(conn)
	if err != nil {
		return 0
	}
	return int(peer.Pid)
}

func acquire(path string, flags int) (*os.File, error) {
	// Root must not follow a symbolic link that the daemon's user created.
	f, err := os.OpenFile(path, flags|os.O_RDWR|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		err = ErrRunning
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

func listen(path string) (net.Listener, error) {
	if conn, err := net.DialTimeout("unix", path, time.Second); err == nil {
		conn.Close()
		return nil, fmt.Errorf("%s answers: %w", path, ErrRunning)
	}
	// The directory's name is short, because the path of a Unix socket can be at most 107 bytes long.
	private, err := os.MkdirTemp(filepath.Dir(path), ".")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(private)
	addr := &net.UnixAddr{Name: filepath.Join(private, "s"), Net: "unix"}
	listener, err := net.ListenUnix("unix", addr)
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // the listener would try to remove the old path
	err = os.Chmod(addr.Name, 0o660)
	if err == nil {
		err = os.Rename(addr.Name, path)
	}
	if err != nil {
		listener.Close()
		return nil, err
	}
	return listener, nil
}
