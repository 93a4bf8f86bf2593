package sdunit

import (
	"errors"
	"net"
	"os"
	"time"
)

// Pauses after a failed accept, which is mostly a lack of file descriptors.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// refusal resets the clients of a socket that can not be closed.
type refusal struct {
	listener *net.TCPListener
	stop     chan struct{}
	done     chan struct{}
}

// refuse has the clients of a socket unit's socket reset, until somebody claims it.
func (s *Sockets) refuse(sock *socket) {
	sock.claimed = false
	if sock.refusal != nil {
		return
	}
	if !sock.warned {
		sock.warned = true
		s.logger.Warn("socket of a socket unit is no NodePort, its clients are reset", "address", sock.addr.String(), "socket_unit", sock.unit)
	}
	sock.refusal = startRefusal(sock.listener)
}

// claim makes the socket accept for its user.
func (s *socket) claim() {
	if s.refusal != nil {
		s.refusal.end()
		s.refusal = nil
	}
	if !s.claimed {
		_ = s.listener.SetDeadline(time.Time{})
	}
	s.claimed = true
}

func startRefusal(listener *net.TCPListener) *refusal {
	r := &refusal{listener: listener, stop: make(chan struct{}), done: make(chan struct{})}
	_ = listener.SetDeadline(time.Time{})
	go r.run()
	return r
}

// end returns when the socket is nobody's.
func (r *refusal) end() {
	close(r.stop)
	_ = r.listener.SetDeadline(time.Unix(1, 0))
	<-r.done
}

func (r *refusal) run() {
	defer close(r.done)
	pause := firstPause
	for {
		conn, err := r.listener.AcceptTCP()
		switch {
		case err == nil:
			_ = conn.SetLinger(0) // makes Close send a reset
			conn.Close()
			pause = firstPause
			continue
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, net.ErrClosed):
			return
		}
		select {
		case <-r.stop:
			return
		case <-time.After(pause):
			pause = min(2*pause, lastPause)
		}
	}
}
