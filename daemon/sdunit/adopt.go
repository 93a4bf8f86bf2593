package sdunit

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"edgeway/proxiers/messageid"
)

// adopt takes over the socket that systemd passed as f, and closes f.
func (s *Sockets) adopt(f *os.File) {
	defer f.Close()
	name := f.Name()
	listener, addr, err := listenerOf(f)
	if err == nil && !addr.Addr().IsLoopback() {
		err = fmt.Errorf("%s is not a loopback address", addr)
	}
	if err != nil {
		s.logger.Warn("closing an unusable descriptor from systemd", "message_id", messageid.DescriptorUnusable,
			"fd_name", name, "error", err)
		if listener != nil {
			listener.Close()
		}
		if isStoreName(name) { // otherwise, systemd would pass the socket again at every start
			s.manager.send("FDSTOREREMOVE=1", "FDNAME="+name)
		}
		return
	}
	file, err := fileOfListener(listener)
	if err != nil {
		s.logger.Warn("closing an unusable descriptor from systemd", "message_id", messageid.DescriptorUnusable,
			"fd_name", name, "error", err)
		return
	}
	if s.open[addr] != nil { // a socket unit has ReusePort=yes; systemd passes unit sockets first
		s.logger.Warn("closing a duplicate socket from systemd", "address", addr.String(), "fd_name", name)
		if isStoreName(name) {
			shutDown(file) // otherwise, the kernel would assign some of the clients to this socket
		}
		file.Close()
		return
	}
	sock := &socket{addr: addr, file: file}
	if isStoreName(name) {
		sock.storedName = name
	} else {
		sock.unitName = name
	}
	s.open[addr] = sock
}

// listenerOf returns a listener for f and its address, or an error if f is not a listening TCP socket.
func listenerOf(f *os.File) (*net.TCPListener, netip.AddrPort, error) {
	var none netip.AddrPort
	l, err := net.FileListener(f)
	if err != nil {
		return nil, none, fmt.Errorf("not a listening socket: %w", err)
	}
	listener, ok := l.(*net.TCPListener)
	if !ok {
		l.Close()
		return nil, none, fmt.Errorf("the socket at %s is a %s socket, not a TCP socket", l.Addr(), l.Addr().Network())
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
		err = fmt.Errorf("the socket at %s is not listening", addr)
	}
	if err != nil {
		listener.Close()
		return nil, none, err
	}
	return listener, addr, nil
}

// shutDown stops the socket from listening in all processes that have it open. The kernel resets queued connections and
// refuses new connections.
func shutDown(socket *os.File) {
	raw, err := socket.SyscallConn()
	if err != nil {
		return // the socket is already closed
	}
	_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
}
