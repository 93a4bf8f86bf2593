package sdunit

import (
	"context"
	"net"
	"os"
	"time"

	"edgeway/proxiers/contain"
)

// Pauses after a failed accept, which is mostly a lack of file descriptors.
const (
	firstPause = 50 * time.Millisecond
	lastPause  = 2 * time.Second
)

// refusal resets the clients of a socket that cannot be closed.
type refusal struct {
	socket *os.File
	stop   context.CancelFunc
	done   chan struct{}
}

// refuse resets the clients of a socket unit's socket, until somebody claims it.
func (s *Sockets) refuse(sock *socket) {
	sock.claimed = false
	if sock.refusal != nil {
		return
	}
	if !sock.warned {
		sock.warned = true
		s.logger.Warn("port of a socket unit is not a NodePort, its clients are reset", "address", sock.addr.String(), "socket_unit", sock.unit)
	}
	sock.refusal = startRefusal(sock.file)
}

// claim makes the socket accept for its user.
func (s *socket) claim() {
	if s.refusal != nil {
		s.refusal.end()
		s.refusal = nil
	}
	s.claimed = true
}

func startRefusal(socket *os.File) *refusal {
	ctx, stop := context.WithCancel(context.Background())
	r := &refusal{socket: socket, stop: stop, done: make(chan struct{})}
	go func() {
		_ = contain.Call(func() error { // a panic leaves clients in the queue of the socket
			r.run(ctx)
			return nil
		})
	}()
	return r
}

// end returns when the refusal no longer uses the socket.
func (r *refusal) end() {
	r.stop()
	<-r.done
}

func (r *refusal) run(ctx context.Context) {
	defer close(r.done)
	for pause := firstPause; ctx.Err() == nil; pause = min(2*pause, lastPause) {
		if r.resetClients(ctx) > 0 {
			pause = firstPause
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
	}
}

// resetClients counts those that it reset until ctx ended or one could not be accepted.
func (r *refusal) resetClients(ctx context.Context) (count int) {
	listener, err := net.FileListener(r.socket) // another descriptor of it
	if err != nil {
		return 0
	}
	defer listener.Close()
	defer context.AfterFunc(ctx, func() { listener.Close() })()
	for {
		conn, err := listener.(*net.TCPListener).AcceptTCP()
		if err != nil {
			return count
		}
		count++
		_ = conn.SetLinger(0) // makes Close send a reset
		conn.Close()
	}
}
