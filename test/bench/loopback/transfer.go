package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// transfer is a number of connections that carry as many bytes as they can, all in one direction.
type transfer struct {
	to      netip.AddrPort
	streams int
	ask     byte // askSend: from the endpoint to the client; askDrop: the other way
	monitor *monitor

	poll     *poller
	payload  []byte
	received uint64 // bytes that came here
}

// run moves bytes for warm, and then for window. mark is called at the beginning and at the end of
// window. It gives the bytes that arrived at the receiving end within window.
func (t *transfer) run(warm, window time.Duration, mark func() error) (bytes float64, took time.Duration, err error) {
	if t.poll, err = newPoller(); err != nil {
		return 0, 0, err
	}
	defer t.poll.close()
	t.payload = make([]byte, chunk)
	fds, err := t.dial()
	defer func() {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
	}()
	if err != nil {
		return 0, 0, err
	}
	if err := t.move(time.Now().Add(warm)); err != nil {
		return 0, 0, err
	}
	before, err := t.measure(mark)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	if err := t.move(began.Add(window)); err != nil {
		return 0, 0, err
	}
	took = time.Since(began)
	after, err := t.measure(mark)
	return float64(after - before), took, err
}

func (t *transfer) dial() (fds []int, err error) {
	events := uint32(unix.EPOLLIN)
	if t.ask == askDrop {
		events = unix.EPOLLOUT
	}
	for range t.streams {
		fd, sent, err := dial(t.to, t.ask)
		if err != nil {
			return fds, err
		}
		fds = append(fds, fd)
		if !sent {
			return fds, fmt.Errorf("connection to %s: not made at once", t.to)
		}
		// A reset at the end, so that nothing has to be drained.
		if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}); err != nil {
			return fds, fmt.Errorf("linger: %w", err)
		}
		if err := t.poll.watch(fd, events, 0); err != nil {
			return fds, err
		}
	}
	return fds, nil
}

// measure gives the bytes that have arrived so far.
func (t *transfer) measure(mark func() error) (uint64, error) {
	if err := mark(); err != nil {
		return 0, err
	}
	if t.ask == askSend {
		return t.received, nil
	}
	s, err := t.monitor.status()
	return s.dropped, err
}

func (t *transfer) move(until time.Time) error {
	stalled := time.Now().Add(patience)
	for time.Now().Before(until) {
		events, err := t.poll.wait(100 * time.Millisecond)
		if err != nil {
			return err
		}
		if len(events) > 0 {
			stalled = time.Now().Add(patience)
		} else if time.Now().After(stalled) {
			return fmt.Errorf("transfer by %s: %w", t.to, errNoAnswer)
		}
		for _, event := range events {
			if err := t.step(int(event.Fd)); err != nil {
				return fmt.Errorf("transfer by %s: %w", t.to, err)
			}
		}
	}
	return nil
}

func (t *transfer) step(fd int) error {
	var n int
	var err error
	if t.ask == askSend {
		n, err = drop(fd)
		t.received += uint64(n)
	} else {
		n, err = unix.Write(fd, t.payload)
	}
	if errors.Is(err, unix.EAGAIN) {
		return nil
	}
	if err == nil && n == 0 {
		return errClosed
	}
	return err
}
