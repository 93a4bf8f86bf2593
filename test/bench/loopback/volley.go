package main

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// patience is how long a relay may leave all of its clients without an answer.
const patience = 20 * time.Second

var (
	errNoAnswer = errors.New("no answer")
	errClosed   = errors.New("closed without an answer")
)

// volley is a number of connections, over each of which one byte goes there and one comes back.
type volley struct {
	to    netip.AddrPort
	count int
	width int  // how many are under way at most
	keep  bool // they stay open, until close

	poll   *poller
	began  []time.Time
	delays []time.Duration // from before connect(2) until the byte was back, as they came
	open   []int           // sockets that are kept
}

// run makes all connections. Any that fails ends it.
func (v *volley) run() error {
	var err error
	if v.poll, err = newPoller(); err != nil {
		return err
	}
	defer v.poll.close()
	for len(v.began) < min(v.width, v.count) {
		if err := v.begin(); err != nil {
			return err
		}
	}
	for len(v.delays) < v.count {
		events, err := v.poll.wait(patience)
		if err != nil {
			return err
		}
		if len(events) == 0 {
			return fmt.Errorf("connection to %s: %w", v.to, errNoAnswer)
		}
		for _, event := range events {
			if err := v.proceed(int(event.Fd), int(event.Pad), event.Events); err != nil {
				return fmt.Errorf("connection to %s: %w", v.to, err)
			}
		}
	}
	return nil
}

func (v *volley) begin() error {
	v.began = append(v.began, time.Now())
	fd, sent, err := dial(v.to, askEcho)
	if err != nil {
		return err
	}
	events := uint32(unix.EPOLLIN)
	if !sent {
		events = unix.EPOLLOUT
	}
	return v.poll.watch(fd, events, len(v.began)-1)
}

// proceed sends the byte that could not be sent at once, or reads the answer.
func (v *volley) proceed(fd, number int, events uint32) error {
	if events&unix.EPOLLOUT != 0 {
		if _, err := unix.Write(fd, []byte{askEcho}); err != nil {
			return err
		}
		return v.poll.change(fd, unix.EPOLLIN, number)
	}
	var answer [1]byte
	n, err := unix.Read(fd, answer[:])
	if err != nil {
		return err
	}
	if n == 0 {
		return errClosed
	}
	v.delays = append(v.delays, time.Since(v.began[number]))
	if v.keep {
		v.open = append(v.open, fd)
	} else {
		_ = unix.Close(fd)
	}
	if len(v.began) < v.count {
		return v.begin()
	}
	return nil
}

// close ends the connections that were kept.
func (v *volley) close() {
	for _, fd := range v.open {
		_ = unix.Close(fd)
	}
	v.open = nil
}
