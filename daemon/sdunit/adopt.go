package sdunit

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
)

// adopt takes a descriptor that the service manager passed. The file is closed: a listener has a
// descriptor of its own.
func (s *Sockets) adopt(f *os.File) {
	defer f.Close()
	name := f.Name()
	listener, addr, err := listenerOf(f)
	if err == nil && !addr.Addr().IsLoopback() {
		err = fmt.Errorf("%s is not a loopback address", addr)
	}
	if err != nil {
		s.logger.Warn("passed descriptor cannot be used and is closed", "fd_name", name, "error", err)
		if listener != nil {
			listener.Close()
		}
		if isOurs(name) { // it would come again at every start
			s.manager.send("FDSTOREREMOVE=1", "FDNAME="+name)
		}
		return
	}
	file, err := plainFile(listener)
	if err != nil {
		s.logger.Warn("passed descriptor cannot be used and is closed", "fd_name", name, "error", err)
		return
	}
	sock := &socket{addr: addr, file: file}
	if isOurs(name) {
		sock.stored = name
	} else {
		sock.unit = name
	}
	s.add(sock)
}

// add keeps one socket for each address: the one of a socket unit rather than one of the fd store,
// as only the latter can be given up. There are two only if a unit has ReusePort=yes.
func (s *Sockets) add(sock *socket) {
	drop := s.open[sock.addr]
	if drop == nil {
		s.open[sock.addr] = sock
		return
	}
	if drop.unit == "" && sock.unit != "" {
		s.open[sock.addr] = sock
	} else {
		drop, sock = sock, drop
	}
	s.logger.Warn("address was passed twice, one socket is closed", "address", sock.addr.String(),
		"kept", sock.unit+sock.stored, "closed", drop.unit+drop.stored)
	if drop.unit != "" {
		drop.file.Close() // no shutdown: another process may use it too
		return
	}
	s.remove(drop)
	if sock.stored == drop.stored {
		s.store(sock, sock.stored) // the name was removed for both
	}
}

// listenerOf gives a listener with its address if the file is a listening TCP socket.
func listenerOf(f *os.File) (*net.TCPListener, netip.AddrPort, error) {
	var none netip.AddrPort
	l, err := net.FileListener(f)
	if err != nil {
		return nil, none, fmt.Errorf("not a listening socket: %w", err)
	}
	listener, ok := l.(*net.TCPListener)
	if !ok {
		l.Close()
		return nil, none, fmt.Errorf("a socket of kind %s at %s, not TCP", l.Addr().Network(), l.Addr())
	}
	accepts := 0
	optErr := errors.ErrUnsupported
	raw, err := listener.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) {
			accepts, optErr = syscall.GetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_ACCEPTCONN)
		})
	}
	addr := listener.Addr().(*net.TCPAddr).AddrPort()
	addr = netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())
	if err = errors.Join(err, optErr); err == nil && accepts == 0 {
		err = fmt.Errorf("a socket at %s that does not listen", addr)
	}
	if err != nil {
		listener.Close()
		return nil, none, err
	}
	return listener, addr, nil
}

// shut ends listening for all holders of the socket: clients in its queue are reset, new ones refused.
func shut(socket *os.File) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return // closed already
	}
	_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
}
