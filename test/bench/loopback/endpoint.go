package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// endpointCommand is the hidden argument with which this program is the endpoint: a process of its own,
// so that it has file descriptors of its own.
const endpointCommand = "endpoint"

// endpoint is the server behind all relays.
type endpoint struct {
	listener int
	poll     *poller
	asked    map[int]byte // of each connection; 0: not said yet
	payload  []byte
	dropped  uint64 // bytes, of all connections
}

// status is what the endpoint says of itself.
type status struct {
	dropped uint64 // bytes that arrived at connections with askDrop
	open    uint64 // connections but the one that asks
}

// serveEndpoint serves until the standard input ends: the one who started it is gone then.
func serveEndpoint(at netip.AddrPort) error {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	runtime.LockOSThread()
	e := &endpoint{asked: map[int]byte{}, payload: make([]byte, chunk)}
	var err error
	if e.poll, err = newPoller(); err != nil {
		return err
	}
	if e.listener, err = listen(at); err != nil {
		return err
	}
	if err := e.poll.watch(e.listener, unix.EPOLLIN, 0); err != nil {
		return err
	}
	for {
		events, err := e.poll.wait(-1)
		if err != nil {
			return err
		}
		for _, event := range events {
			if fd := int(event.Fd); fd == e.listener {
				err = e.accept()
			} else if !e.serve(fd) {
				delete(e.asked, fd)
				err = unix.Close(fd)
			}
			if err != nil {
				return err
			}
		}
	}
}

func listen(at netip.AddrPort) (int, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return -1, fmt.Errorf("listener at %s: %w", at, err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}); err != nil {
		return -1, fmt.Errorf("listener at %s: %w", at, err)
	}
	return fd, unix.Listen(fd, 4096)
}

func (e *endpoint) accept() error {
	for {
		fd, _, err := unix.Accept4(e.listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if errors.Is(err, unix.ECONNABORTED) {
			continue
		}
		if err != nil {
			return fmt.Errorf("accept: %w", err)
		}
		e.asked[fd] = 0
		if err := e.poll.watch(fd, unix.EPOLLIN, 0); err != nil {
			return err
		}
	}
}

// serve does what can be done without waiting; false: the connection is over.
func (e *endpoint) serve(fd int) bool {
	var n int
	var err error
	switch e.asked[fd] {
	case askSend:
		n, err = unix.Write(fd, e.payload)
	case askDrop:
		n, err = drop(fd)
		e.dropped += uint64(n)
	default:
		n, err = e.answer(fd)
	}
	return err == nil && n > 0 || errors.Is(err, unix.EAGAIN)
}

// answer reads what is asked, and says it at once if it is short.
func (e *endpoint) answer(fd int) (int, error) {
	var ask [1]byte
	n, err := unix.Read(fd, ask[:])
	if err != nil || n == 0 {
		return n, err
	}
	e.asked[fd] = ask[0]
	switch ask[0] {
	case askEcho:
		return unix.Write(fd, ask[:])
	case askSend:
		return 1, e.poll.change(fd, unix.EPOLLOUT, 0)
	case askStatus:
		raw := binary.NativeEndian.AppendUint64(nil, e.dropped)
		return unix.Write(fd, binary.NativeEndian.AppendUint64(raw, uint64(len(e.asked)-1)))
	}
	return 1, nil
}

// monitor is a connection to the endpoint that asks for its status.
type monitor struct{ fd int }

func newMonitor() (*monitor, error) {
	fd, _, err := dial(endpointAddr, askStatus)
	if err != nil {
		return nil, err
	}
	if err := unix.SetNonblock(fd, false); err != nil {
		return nil, fmt.Errorf("monitor: %w", err)
	}
	m := &monitor{fd: fd}
	_, err = m.read() // the answer to the first byte
	return m, err
}

func (m *monitor) close() { _ = unix.Close(m.fd) }

func (m *monitor) status() (status, error) {
	if _, err := unix.Write(m.fd, []byte{askStatus}); err != nil {
		return status{}, fmt.Errorf("question to the endpoint: %w", err)
	}
	return m.read()
}

func (m *monitor) read() (status, error) {
	var raw [16]byte
	n, err := unix.Read(m.fd, raw[:])
	if err != nil || n != len(raw) {
		return status{}, fmt.Errorf("answer of the endpoint: %d bytes, %w", n, err)
	}
	return status{binary.NativeEndian.Uint64(raw[:]), binary.NativeEndian.Uint64(raw[8:])}, nil
}

// idle waits until the endpoint has no connection: the relay has noticed all closes.
func (m *monitor) idle() error {
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(2 * time.Millisecond) {
		s, err := m.status()
		if err != nil || s.open == 0 {
			return err
		}
	}
	return errors.New("connections to the endpoint stay open after the clients have closed theirs")
}
