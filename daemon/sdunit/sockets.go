package sdunit

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/coreos/go-systemd/v22/activation"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/messageid"
)

// Sockets holds the listening sockets for NodePorts on loopback. Sockets implements proxiers/localnodeport.Sockets.
//
// The process has only one Sockets value, which keeps the sockets open during a configuration reload. During a process
// restart, systemd's fd store keeps a copy of each socket. systemd also keeps the sockets of socket units open. While
// no process accepts connections, new connections wait in the socket's queue.
type Sockets struct {
	manager *Manager
	logger  *slog.Logger

	mu   sync.Mutex
	open map[netip.AddrPort]*socket
}

// socket is one listening socket that systemd passed or that this process opened.
type socket struct {
	addr netip.AddrPort
	file *os.File
	// unitName is the name of a socket that a socket unit created. storedName is the name of a socket in the fd store.
	// Under systemd, either unitName or storedName is set.
	unitName, storedName string
	listening            bool // Listen was called
	released             bool // Release was called, and the socket stays open
}

// PassedFiles returns the files that the service manager passed, and removes the LISTEN_* variables from the
// environment. go-systemd (22.7) allocates memory for as many files as LISTEN_FDS specifies, so PassedFiles ignores a
// value above the process's limit on open files.
func PassedFiles() []*os.File {
	var limit unix.Rlimit
	n, err := strconv.ParseUint(os.Getenv("LISTEN_FDS"), 10, 64)
	if err != nil || unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || n > limit.Max {
		os.Unsetenv("LISTEN_FDS")
	}
	return activation.Files(true)
}

// NewSockets adopts the loopback sockets among the files that systemd passed, and closes the other files.
func NewSockets(manager *Manager, passed []*os.File, logger *slog.Logger) *Sockets {
	s := &Sockets{manager: manager, logger: logger, open: map[netip.AddrPort]*socket{}}
	for _, f := range passed {
		s.adopt(f)
	}
	return s
}

// Listen returns the listening socket for a loopback address. Listen reuses a socket that systemd passed or that an
// earlier call opened, or else opens a new socket and sends a copy to the fd store. If the port is in use, the error
// wraps syscall.EADDRINUSE. The caller must not close the file.
func (s *Sockets) Listen(addr netip.AddrPort) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sock := s.open[addr]; sock != nil {
		sock.listening, sock.released = true, false
		return sock.file, nil
	}
	listener, err := listen(addr)
	if err != nil {
		return nil, err
	}
	file, err := fileOfListener(listener)
	if err != nil {
		return nil, err
	}
	sock := &socket{addr: addr, file: file, listening: true}
	s.open[addr] = sock
	s.store(sock, storeName(addr))
	return file, nil
}

// Release closes the socket for an address, both in this process and in the fd store, so that the kernel refuses new
// connections. A socket from a socket unit stays open, because systemd keeps a copy, and new connections to the socket
// wait in its queue. Callers must stop accepting connections from the socket before they call Release.
func (s *Sockets) Release(addr netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sock := s.open[addr]
	switch {
	case sock == nil:
	case sock.unitName != "":
		sock.listening, sock.released = false, true
		s.logger.Warn("port of a socket unit is not a NodePort", "message_id", messageid.SocketUnitUnused,
			"address", addr.String(), "socket_unit", sock.unitName)
	default:
		delete(s.open, addr)
		s.remove(sock)
	}
}

// Unused returns the addresses of the passed sockets for which neither Listen nor Release was called.
func (s *Sockets) Unused() []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []netip.AddrPort
	for addr, sock := range s.open {
		if !sock.listening && !sock.released {
			out = append(out, addr)
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return out
}

// storePrefix is the prefix of socket names in the fd store. The prefix distinguishes stored sockets from the sockets
// of socket units, which by default have the name of their unit.
const storePrefix = "nodeport-"

// storeName returns the name of a socket in the fd store. Socket names in the fd store must not contain a colon.
func storeName(addr netip.AddrPort) string {
	host := addr.Addr().String()
	if addr.Addr().Is6() { // ::1 is the only loopback address of IPv6
		host = "ip6-loopback"
	}
	return fmt.Sprintf("%s%s-%d", storePrefix, host, addr.Port())
}

// store sends a copy of the socket to systemd, which keeps at most FileDescriptorStoreMax= copies.
func (s *Sockets) store(sock *socket, name string) {
	sock.storedName = name
	s.manager.sendSocket(sock.file, "FDSTORE=1", "FDNAME="+name)
}

func (s *Sockets) remove(sock *socket) {
	// Closing only the daemon's copy would leave systemd's copy listening until systemd has read the FDSTOREREMOVE=
	// message. While only systemd's copy listens, clients hang, and no process can bind the address.
	shutDown(sock.file)
	sock.file.Close()
	if sock.storedName != "" {
		s.manager.send("FDSTOREREMOVE=1", "FDNAME="+sock.storedName)
	}
}

// listen opens a plain TCP socket, because Multipath TCP, Go's default, has no benefit on loopback and slows down
// relayed connections. The network "tcp6" excludes IPv4 (IPV6_V6ONLY).
func listen(addr netip.AddrPort) (*net.TCPListener, error) {
	network := "tcp4"
	if addr.Addr().Is6() {
		network = "tcp6"
	}
	var config net.ListenConfig
	config.SetMultipathTCP(false)
	listener, err := config.Listen(context.Background(), network, addr.String())
	if err != nil {
		return nil, err
	}
	return listener.(*net.TCPListener), nil
}

func fileOfListener(listener *net.TCPListener) (*os.File, error) {
	defer listener.Close()
	return listener.File()
}

// isStoreName reports whether Edgeway uses name for a socket in the fd store. The result is false for a name with a
// line break, because the line break would begin another assignment in a message to systemd.
func isStoreName(name string) bool {
	return strings.HasPrefix(name, storePrefix) && !strings.ContainsRune(name, '\n')
}
