package relay

import (
	"fmt"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listener is a listening TCP socket: a *net.TCPListener, or an *os.File.
type Listener = syscall.Conn

// Port is one listening socket that a Relay accepts from.
type Port struct {
	relay  *Relay
	number uint32
	fd     int32 // a duplicate
	plain  bool  // TCP, so that connections inherit the listening socket's options; else Multipath TCP
	target atomic.Pointer[Target]
}

// SetTarget changes who chooses the endpoints, from the next dial on. Running connections stay. It
// waits for nothing.
func (p *Port) SetTarget(t Target) { p.target.Store(&t) }

// Stop ends accepting: when it returns, no more connections are taken from the listening socket.
// Those that wait in its queue stay there for the next Serve, or until the socket is closed.
// Connections that were accepted continue until they end. A second Stop does nothing.
func (p *Port) Stop() {
	r := p.relay
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ports[p.number] != p {
		return
	}
	delete(r.ports, p.number)
	r.each(func(l *loop) { l.forget(p) })
	closeFD(p.fd)
}

// duplicate gives a descriptor of our own for a listening TCP socket, with the options that accepted
// connections inherit.
func duplicate(l Listener) (dup int32, plain bool, err error) {
	raw, err := l.SyscallConn()
	if err != nil {
		return -1, false, fmt.Errorf("listening socket: %w", err)
	}
	fd, dupErr := -1, error(nil)
	if err := raw.Control(func(original uintptr) {
		fd, dupErr = unix.FcntlInt(original, unix.F_DUPFD_CLOEXEC, 0)
	}); err != nil {
		return -1, false, fmt.Errorf("listening socket: %w", err)
	}
	if dupErr != nil {
		return -1, false, fmt.Errorf("duplicate listening socket: %w", dupErr)
	}
	if plain, err = prepare(fd); err != nil {
		closeFD(int32(fd))
		return -1, false, err
	}
	return int32(fd), plain, nil
}

func prepare(fd int) (plain bool, err error) {
	listening, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return false, fmt.Errorf("listening socket: %w", err)
	}
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return false, fmt.Errorf("listening socket: %w", err)
	}
	plain = protocol == unix.IPPROTO_TCP
	if listening == 0 || !plain && protocol != unix.IPPROTO_MPTCP {
		return false, fmt.Errorf("listening socket: %w", unix.EINVAL)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return false, fmt.Errorf("make listening socket non-blocking: %w", err)
	}
	setOption(int32(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
	keepAlive(int32(fd))
	return plain, nil
}
