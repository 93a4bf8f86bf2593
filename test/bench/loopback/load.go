package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// The first byte of a connection tells the endpoint what to do with it.
const (
	askEcho byte = 'e' // send one byte back
	askSend byte = 's' // send until the client closes
	askDrop byte = 'd' // discard everything
)

const (
	chunk    = 256 << 10   // bytes in one system call
	patience = time.Minute // a relay that does nothing for longer has failed
	warm     = 200 * time.Millisecond
	clients  = 8 // that open connections at the same time
)

// endpoint is the server behind all relays.
type endpoint struct {
	net.Listener
	open    atomic.Int64
	dropped atomic.Int64 // bytes of askDrop
}

func (e *endpoint) serve() {
	for {
		conn, err := e.Accept()
		if err != nil {
			return
		}
		e.open.Add(1)
		go func() {
			defer e.open.Add(-1)
			defer conn.Close()
			e.answer(conn.(*net.TCPConn))
		}()
	}
}

func (e *endpoint) answer(conn *net.TCPConn) {
	var ask [1]byte
	if _, err := io.ReadFull(conn, ask[:]); err != nil {
		return
	}
	switch ask[0] {
	case askEcho:
		_, _ = conn.Write(ask[:])
		_, _ = conn.Read(ask[:]) // the client closes first
	case askSend:
		for {
			if _, err := conn.Write(payload); err != nil {
				return
			}
		}
	case askDrop:
		_ = drop(conn, &e.dropped)
	}
}

// drained waits until a relay has closed all connections of its turn.
func (e *endpoint) drained() error {
	for until := time.Now().Add(patience); e.open.Load() > 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			return fmt.Errorf("%d connections to the endpoint stay open after the clients have closed theirs", e.open.Load())
		}
	}
	return nil
}

var payload = make([]byte, chunk)

// drop discards what arrives, in the kernel (MSG_TRUNC of tcp(7)), and counts it.
func drop(conn *net.TCPConn, count *atomic.Int64) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	for {
		var n int
		var recvErr error
		err := raw.Read(func(fd uintptr) bool {
			n, recvErr = discard(int(fd))
			return !errors.Is(recvErr, unix.EAGAIN)
		})
		if err = errors.Join(err, recvErr); err != nil || n == 0 {
			return err
		}
		count.Add(int64(n))
	}
}

func discard(fd int) (int, error) {
	n, _, errno := unix.Syscall6(unix.SYS_RECVFROM, uintptr(fd), 0, chunk, unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}

func dial(to netip.AddrPort, ask byte) (*net.TCPConn, error) {
	conn, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(to))
	if err != nil {
		return nil, err
	}
	_, err = conn.Write([]byte{ask})
	return conn, err
}

// transfer moves bytes over all streams in one direction and returns those that arrived per second of the window.
func (e *endpoint) transfer(by netip.AddrPort, streams int, up bool, window time.Duration) (float64, error) {
	ask, arrived := askSend, &atomic.Int64{}
	if up {
		ask, arrived = askDrop, &e.dropped
	}
	conns := make([]*net.TCPConn, 0, streams)
	defer func() {
		for _, c := range conns {
			_ = c.SetLinger(0) // nothing is left to drain
			_ = c.Close()
		}
	}()
	for range streams {
		c, err := dial(by, ask)
		if err != nil {
			return 0, err
		}
		conns = append(conns, c)
	}
	for _, c := range conns {
		if up {
			go func() {
				for {
					if _, err := c.Write(payload); err != nil {
						return
					}
				}
			}()
		} else {
			go func() { _ = drop(c, arrived) }()
		}
	}
	time.Sleep(warm)
	began, before := time.Now(), arrived.Load()
	time.Sleep(window)
	for arrived.Load() == before { // a busy machine with 1,000 streams
		if time.Since(began) > patience {
			return 0, errors.New("no byte arrived")
		}
		time.Sleep(window)
	}
	return float64(arrived.Load()-before) / time.Since(began).Seconds(), nil
}

// connect makes connections, each of which carries one byte there and back, and returns their number per second.
func connect(to netip.AddrPort, count int) (float64, error) {
	var group errgroup.Group
	var left atomic.Int64
	left.Store(int64(count))
	began := time.Now()
	for range clients {
		group.Go(func() error {
			for left.Add(-1) >= 0 {
				if err := echo(to); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err := group.Wait()
	return float64(count) / time.Since(began).Seconds(), err
}

func echo(to netip.AddrPort) error {
	conn, err := dial(to, askEcho)
	if err != nil {
		return err
	}
	defer conn.Close()
	var answer [1]byte
	_ = conn.SetDeadline(time.Now().Add(patience))
	_, err = io.ReadFull(conn, answer[:])
	return err
}
