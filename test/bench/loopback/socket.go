package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// chunk is how much is sent or dropped by one system call.
const chunk = 256 << 10

// The first byte of a connection tells the endpoint what it is for.
const (
	askEcho   byte = 'e' // one byte back
	askSend   byte = 's' // bytes without end
	askDrop   byte = 'd' // nothing: drop all that comes
	askStatus byte = '?' // a status
)

// dial begins a connection, sends its first byte if that can be done without waiting, and says
// whether it was. On loopback it mostly can: the kernel does the whole handshake within connect(2).
func dial(to netip.AddrPort, first byte) (fd int, sent bool, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, false, fmt.Errorf("socket: %w", err)
	}
	err = unix.Connect(fd, &unix.SockaddrInet4{Addr: to.Addr().As4(), Port: int(to.Port())})
	if err == nil || errors.Is(err, unix.EINPROGRESS) {
		_, err = unix.Write(fd, []byte{first})
	}
	if err != nil && !errors.Is(err, unix.EAGAIN) {
		_ = unix.Close(fd)
		return -1, false, fmt.Errorf("connection to %s: %w", to, err)
	}
	return fd, err == nil, nil
}

// drop discards up to chunk bytes that have arrived, without copying them (MSG_TRUNC of tcp(7)), and
// says how many. 0: the connection ends.
func drop(fd int) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), 0, chunk, unix.MSG_TRUNC, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

// poller waits for sockets. Plain epoll on one thread keeps the Go runtime out of what is measured.
type poller struct {
	fd     int
	events [256]unix.EpollEvent
}

func newPoller() (*poller, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll: %w", err)
	}
	return &poller{fd: fd}, nil
}

func (p *poller) close() { _ = unix.Close(p.fd) }

// watch has wait report events of fd, with a number of the caller's.
func (p *poller) watch(fd int, events uint32, number int) error {
	return p.control(unix.EPOLL_CTL_ADD, fd, events, number)
}

// change replaces what watch said.
func (p *poller) change(fd int, events uint32, number int) error {
	return p.control(unix.EPOLL_CTL_MOD, fd, events, number)
}

func (p *poller) control(op, fd int, events uint32, number int) error {
	if err := unix.EpollCtl(p.fd, op, fd, &unix.EpollEvent{Events: events, Fd: int32(fd), Pad: int32(number)}); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

// wait gives what has happened, or nothing when the time is over. Negative: without end.
func (p *poller) wait(timeout time.Duration) ([]unix.EpollEvent, error) {
	until := time.Now().Add(timeout)
	for {
		ms := -1
		if timeout >= 0 {
			ms = int(max(0, time.Until(until)+time.Millisecond-1) / time.Millisecond)
		}
		n, err := unix.EpollWait(p.fd, p.events[:], ms)
		// The Go runtime interrupts threads by signals.
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("epoll: %w", err)
		}
		return p.events[:n], nil
	}
}
