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

// The first byte that a client sends is a command to the endpoint.
const (
	askEcho    byte = 'e' // send a byte back
	askSend    byte = 's' // send until the client closes the connection
	askDiscard byte = 'd' // discard all bytes
)

const patience = time.Minute // a relay that transfers no bytes for this time is considered hung

var payload = make([]byte, 256<<10)

type endpoint struct {
	net.Listener
	open, discarded atomic.Int64
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
			var ask [1]byte
			if _, err := io.ReadFull(conn, ask[:]); err != nil {
				return
			}
			switch ask[0] {
			case askEcho:
				_, _ = conn.Write(ask[:])
				_, _ = conn.Read(ask[:]) // the client closes the connection first
			case askSend:
				send(conn)
			case askDiscard:
				discard(conn, &e.discarded)
			}
		}()
	}
}

func send(conn net.Conn) {
	for {
		if _, err := conn.Write(payload); err != nil {
			return
		}
	}
}

// discard counts and discards all received bytes. With MSG_TRUNC, the kernel discards the bytes without copying them
// (see tcp(7)).
func discard(conn net.Conn, count *atomic.Int64) {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	for n, errno := uintptr(1), unix.Errno(0); err == nil && errno == 0 && n > 0; {
		err = raw.Read(func(fd uintptr) bool {
			n, _, errno = unix.Syscall6(unix.SYS_RECVFROM, fd, 0, uintptr(len(payload)),
				unix.MSG_TRUNC|unix.MSG_DONTWAIT, 0, 0)
			return errno != unix.EAGAIN
		})
		if errno == 0 {
			count.Add(int64(n))
		}
	}
}

// measure returns the number of new connections per second if s.streams is 0, and the throughput in GB/s otherwise.
// Before it returns, measure waits until the relay has closed all connections.
func (l *lab) measure(o options, s step, r relay) (value float64, err error) {
	if s.streams == 0 {
		value, err = connect(r.addr, o.connections)
	} else {
		value, err = l.endpoint.transfer(r.addr, s, o.window)
		value /= 1e9
	}
	for until := time.Now().Add(patience); err == nil && l.endpoint.open.Load() > 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(until) {
			err = fmt.Errorf("the relay still has %d open connections although the clients have closed all connections",
				l.endpoint.open.Load())
		}
	}
	return value, err
}

// transfer sends data over all streams and returns the number of bytes received per second.
func (e *endpoint) transfer(to netip.AddrPort, s step, window time.Duration) (float64, error) {
	arrived := &atomic.Int64{}
	if s.up {
		arrived = &e.discarded
	}
	for range s.streams {
		ask := askSend
		if s.up {
			ask = askDiscard
		}
		conn, err := dial(to, ask)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		_ = conn.SetLinger(0) // Close must discard unsent bytes
		if s.up {
			go send(conn)
		} else {
			go discard(conn, arrived)
		}
	}
	time.Sleep(200 * time.Millisecond)
	began, before := time.Now(), arrived.Load()
	for arrived.Load() == before { // with 1,000 streams, a busy machine may need more than one window
		if time.Since(began) > patience {
			return 0, errors.New("no byte arrived")
		}
		time.Sleep(window)
	}
	return float64(arrived.Load()-before) / time.Since(began).Seconds(), nil
}

// connect opens connections, up to eight at a time, sends one byte in each direction on each connection, and returns
// the number of connections per second.
func connect(to netip.AddrPort, count int) (float64, error) {
	var group errgroup.Group
	group.SetLimit(8)
	began := time.Now()
	for range count {
		group.Go(func() error { return echo(to) })
	}
	err := group.Wait()
	return float64(count) / time.Since(began).Seconds(), err
}

func dial(to netip.AddrPort, ask byte) (*net.TCPConn, error) {
	conn, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(to))
	if err != nil {
		return nil, err
	}
	_, err = conn.Write([]byte{ask})
	return conn, err
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
