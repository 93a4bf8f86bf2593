package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// ErrRunning says that another daemon has the socket.
var ErrRunning = errors.New("another edgeway daemon is running")

// socket is the bound socket with the lock that makes it ours.
type socket struct {
	net.Listener
	path string
	lock *os.File
}

// bind makes a socket that only its owner and its group may use, in place of one that a dead daemon left.
//
// A lock file beside it decides between two daemons that start at once, and the kernel frees the lock
// with the process. The socket is made in a folder of its own and then moved, so that nobody else
// can connect at any time, whatever the umask. The group is that of the process.
func bind(path string) (*socket, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	lock, err := acquire(path + ".lock")
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

// Close removes the socket and frees the lock. The lock file stays: removing it would let two daemons
// lock two files of the same name.
func (s *socket) Close() error {
	return errors.Join(s.Listener.Close(), os.Remove(s.path), s.lock.Close())
}

func acquire(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
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
	// The name is short, as the address of a socket has room for 107 bytes.
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
	listener.SetUnlinkOnClose(false) // it would try the old name
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
