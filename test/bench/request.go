package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"
	discoveryv1 "k8s.io/api/discovery/v1"

	"edgeway/test/e2e/cluster"
)

const (
	// askPort is where endpoints answer requests: eight bytes, a number, with that many bytes.
	askPort = cluster.EndpointPort + 1
	// asked is how many Services lead there for a while.
	asked = 20
	// answerBytes are those of a request's answer, streamBytes those of a stream.
	answerBytes = 64
	streamBytes = 32 << 20
)

// requests measures the time of a new connection with one request, and of a long answer, in short blocks that take turns as those
// of connections do.
func (b *bench) requests(ctx context.Context) error {
	if err := b.lead(ctx, askPort); err != nil {
		return err
	}
	for _, p := range b.programs() {
		if err := b.turn(ctx, p); err != nil {
			return err
		}
		if err := b.awaitAnswers(ctx, p); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	if err := b.turn(ctx, nil); err != nil {
		return err
	}
	if err := b.forgetFlows(); err != nil {
		return err
	}
	order := b.programs()
	for block := range requestBlocks {
		for _, p := range order {
			if err := errors.Join(ctx.Err(), b.requestBlock(p, block%10 == 0)); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}
		slices.Reverse(order)
	}
	return b.lead(ctx, cluster.EndpointPort)
}

// requestBlocks of requests are made; every tenth has a stream.
const requestBlocks = 80

func (b *bench) requestBlock(p *program, withStream bool) error {
	const block = 50
	var total time.Duration
	for range block {
		took, err := p.host.ask(serviceGoal(rand.IntN(min(asked, b.size))).to, answerBytes)
		if err != nil {
			return err
		}
		total += took
	}
	b.results.add(request, b.size, p.name, total.Seconds()/block)
	if !withStream {
		return nil
	}
	took, err := p.host.ask(serviceGoal(0).to, streamBytes)
	b.results.add(stream, b.size, p.name, took.Seconds()/(streamBytes/1e9))
	return err
}

// lead has the first Services lead to a port of their endpoints.
func (b *bench) lead(ctx context.Context, port int32) error {
	var changed []*discoveryv1.EndpointSlice
	for i := range min(asked, b.size) {
		s := cluster.Slice(i, b.opts.endpoints)
		s.Ports[0].Port = &port
		changed = append(changed, s)
	}
	return b.origin.UpdateSlices(ctx, changed)
}

// awaitAnswers waits until the Services lead to endpoints that answer requests.
func (b *bench) awaitAnswers(ctx context.Context, p *program) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for i := range min(asked, b.size) {
		for {
			_, err := p.host.ask(serviceGoal(i).to, answerBytes)
			if err == nil {
				break
			}
			if errSleep := sleep(ctx, 50*time.Millisecond); errSleep != nil {
				return fmt.Errorf("Service %d: %w: %w", i, errSleep, err)
			}
		}
	}
	return nil
}

// ask connects, asks for that many bytes, and gives the time until they are there.
func (h *host) ask(to netip.AddrPort, bytes int) (took time.Duration, err error) {
	err = cluster.InNetns(h.netns, func() error {
		began := time.Now()
		fd, err := open(to, time.Second)
		if err != nil {
			return fmt.Errorf("connection to %s: %w", to, err)
		}
		defer unix.Close(fd)
		if _, err := unix.Write(fd, binary.BigEndian.AppendUint64(nil, uint64(bytes))); err != nil {
			return fmt.Errorf("request to %s: %w", to, err)
		}
		if err := receive(fd, bytes); err != nil {
			return fmt.Errorf("answer of %s: %w", to, err)
		}
		took = time.Since(began)
		return nil
	})
	return took, err
}

// receive reads that many bytes.
func receive(fd, bytes int) error {
	buf := make([]byte, min(bytes, 256<<10))
	for bytes > 0 {
		if err := wait(fd, unix.POLLIN, 10*time.Second); err != nil {
			return err
		}
		n, err := unix.Read(fd, buf)
		switch {
		case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		default:
			bytes -= n
		}
	}
	return nil
}

// answerRequests gives every client what it asks for.
func answerRequests(listener net.Listener) {
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			go answerRequest(conn)
		}
	}
}

// answerRequest answers one client.
func answerRequest(conn net.Conn) {
	defer conn.Close()
	var raw [8]byte
	if _, err := io.ReadFull(conn, raw[:]); err != nil {
		return
	}
	zeros := make([]byte, min(binary.BigEndian.Uint64(raw[:]), 256<<10))
	for left := binary.BigEndian.Uint64(raw[:]); left > 0; {
		n, err := conn.Write(zeros[:min(left, uint64(len(zeros)))])
		if err != nil {
			return
		}
		left -= uint64(n)
	}
	_, _ = conn.Read(raw[:]) // the client ends it
}
