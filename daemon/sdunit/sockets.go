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

// Sockets are the listening sockets of NodePorts on loopback. They implement proxiers/localnodeport.Sockets.
//
// There is one for the process: it keeps sockets over a reload of the configuration. Over a restart of
// the process they are in the fd store of the service manager, which holds a copy of each. Sockets of socket
// units are held by the service manager anyway. A client that connects while no process accepts waits in the queue.
type Sockets struct {
	manager *Manager
	logger  *slog.Logger

	mu   sync.Mutex
	open map[netip.AddrPort]*socket
}

// socket is one listening socket, passed or opened here.
type socket struct {
	addr netip.AddrPort
	file *os.File
	// unit is the name of a descriptor that a socket unit holds; stored is the name in the fd store.
	// One of them is set where there is a service manager.
	unit, stored string
	claimed      bool // Listen was called
	released     bool // Release was called, for a socket that stays open
}

// Passed returns the files that the service manager passed, and removes them from the environment. go-systemd (22.7)
// allocates memory for the number in the environment, so Passed ignores a number above the limit of the process.
func Passed() []*os.File {
	var limit unix.Rlimit
	n, err := strconv.ParseUint(os.Getenv("LISTEN_FDS"), 10, 64)
	if err != nil || unix.Getrlimit(unix.RLIMIT_NOFILE, &limit) != nil || n > limit.Max {
		os.Unsetenv("LISTEN_FDS")
	}
	return activation.Files(true)
}

// NewSockets adopts the sockets among the files that the service manager passed and closes the others.
func NewSockets(manager *Manager, passed []*os.File, logger *slog.Logger) *Sockets {
	s := &Sockets{manager: manager, logger: logger, open: map[netip.AddrPort]*socket{}}
	for _, f := range passed {
		s.adopt(f)
	}
	return s
}

// Listen returns the listening socket of a loopback address: one that was passed or opened before, or a new one, of
// which it sends a copy to the fd store. The error for a port in use wraps syscall.EADDRINUSE. The caller must not
// close the file.
func (s *Sockets) Listen(addr netip.AddrPort) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sock := s.open[addr]; sock != nil {
		sock.claimed, sock.released = true, false
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
	sock := &socket{addr: addr, file: file, claimed: true}
	s.open[addr] = sock
	s.store(sock, storeName(addr))
	return file, nil
}

// Release closes the socket of an address, here and in the fd store. The kernel then refuses clients. The socket of a
// socket unit stays open, because systemd holds it, and its clients wait in the queue. No goroutine may still be
// accepting from the socket.
func (s *Sockets) Release(addr netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sock := s.open[addr]
	switch {
	case sock == nil:
	case sock.unit != "":
		sock.claimed, sock.released = false, true
		s.logger.Warn("port of a socket unit is no NodePort", "message_id", messageid.SocketUnitUnused,
			"address", addr.String(), "socket_unit", sock.unit)
	default:
		delete(s.open, addr)
		s.remove(sock)
	}
}

// Unclaimed lists the sockets that were passed, and for which neither Listen nor Release was called.
func (s *Sockets) Unclaimed() []netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []netip.AddrPort
	for addr, sock := range s.open {
		if !sock.claimed && !sock.released {
			out = append(out, addr)
		}
	}
	slices.SortFunc(out, netip.AddrPort.Compare)
	return out
}

// storePrefix begins the names of sockets in the fd store. By default, a socket of a socket unit has the name of the
// unit.
const storePrefix = "nodeport-"

// storeName names a socket in the fd store, where a colon is not allowed.
func storeName(addr netip.AddrPort) string {
	host := addr.Addr().String()
	if addr.Addr().Is6() { // there is only one
		host = "ip6-loopback"
	}
	return fmt.Sprintf("%s%s-%d", storePrefix, host, addr.Port())
}

// store sends a copy to the service manager, which keeps none above FileDescriptorStoreMax=.
func (s *Sockets) store(sock *socket, name string) {
	sock.stored = name
	s.manager.sendSocket(sock.file, "FDSTORE=1", "FDNAME="+name)
}

// remove closes the socket for good.
func (s *Sockets) remove(sock *socket) {
	// Closing alone would leave the service manager's copy listening until the manager has read the
	// message: clients would hang, and the address could not be bound again.
	shut(sock.file)
	sock.file.Close()
	if sock.stored != "" {
		s.manager.send("FDSTOREREMOVE=1", "FDNAME="+sock.stored)
	}
}

// listen uses plain TCP: Go's default of Multipath TCP gains nothing on loopback, and a relay
// of a Multipath TCP connection is slower. "tcp6" keeps IPv4 out (IPV6_V6ONLY).
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

// fileOfListener returns the socket of a listener, which it closes.
func fileOfListener(listener *net.TCPListener) (*os.File, error) {
	defer listener.Close()
	return listener.File()
}

// isOurs reports whether a name in the fd store is one of Edgeway's. A line break in it would begin another assignment.
func isOurs(name string) bool {
	return strings.HasPrefix(name, storePrefix) && !strings.ContainsRune(name, '\n')
}
