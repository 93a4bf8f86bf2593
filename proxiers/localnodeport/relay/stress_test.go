package relay

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// script describes one peer's actions on a connection. Each peer derives the scripts of both peers from the same seed.
type script struct {
	rng    *rand.Rand
	seed   byte
	size   int  // size is the number of bytes to send
	chunk  int  // chunk is the maximum size of a write
	after  bool // if after is true, the peer sends only after the other peer has half-closed the connection
	resets bool // if resets is true, the peer resets the connection instead of closing it
}

const (
	client = iota
	endpoint
)

func scripts(seed uint64) [2]script {
	var both [2]script
	for i := range both {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		size := rng.IntN(1 << rng.IntN(22))
		both[i] = script{
			rng: rng, seed: byte(seed) + byte(i), size: size, chunk: 1 + size/200 + rng.IntN(1<<rng.IntN(19)),
			after: rng.IntN(4) == 0, resets: rng.IntN(8) == 0,
		}
	}
	both[endpoint].after = both[endpoint].after && !both[client].after
	return both
}

// play executes one peer's script (mine), and returns an error unless the other peer executes its own script (theirs).
func play(c *net.TCPConn, mine, theirs script) error {
	sent := make(chan error, 1)
	send := func() { sent <- mine.send(c) }
	if !mine.after {
		go send()
	}
	received := theirs.expect(c)
	if mine.after {
		go send()
	}
	if err := <-sent; err != nil || received != nil {
		if reset := isReset(err) || isReset(received); reset && (mine.resets || theirs.resets) {
			return nil
		}
		return errors.Join(err, received)
	}
	return nil
}

func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, net.ErrClosed)
}

func (s script) send(c *net.TCPConn) error {
	out, buf := newNoise(s.seed, s.size), make([]byte, s.chunk)
	for {
		n, err := out.Read(buf[:1+s.rng.IntN(s.chunk)])
		if err != nil {
			break
		}
		if _, err := c.Write(buf[:n]); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		if s.rng.IntN(64) == 0 { // pauses are rare, so that data also queues up in the relay
			time.Sleep(time.Duration(s.rng.IntN(1000)) * time.Microsecond)
		}
	}
	if s.resets {
		_ = c.SetLinger(0)
		return c.Close()
	}
	return c.CloseWrite()
}

func (s script) expect(c *net.TCPConn) error {
	want, got, buf := newNoise(s.seed, s.size), 0, make([]byte, 64<<10)
	wanted := make([]byte, len(buf))
	for {
		n, err := c.Read(buf)
		if got += n; got > s.size {
			return fmt.Errorf("read %d bytes, want %d", got, s.size)
		}
		if _, readErr := io.ReadFull(want, wanted[:n]); readErr != nil && n > 0 {
			return readErr
		}
		if string(buf[:n]) != string(wanted[:n]) {
			return fmt.Errorf("other bytes than sent, before %d", got)
		}
		switch {
		case err == nil:
		case !errors.Is(err, io.EOF):
			return fmt.Errorf("read: %w", err)
		case got != s.size || s.resets:
			return fmt.Errorf("end after %d bytes, want %d, reset %v", got, s.size, s.resets)
		default:
			return nil
		}
	}
}

// For random sizes, writes, closes and resets, each peer observes exactly the other peer's actions.
func TestRandomConnections(t *testing.T) {
	var faults atomic.Int32
	fault := func(who string, seed uint64, err error) {
		if err != nil && faults.Add(1) < 10 {
			t.Errorf("%s of seed %d: %v", who, seed, err)
		}
	}
	var endpoints atomic.Int32
	to := server(t, func(c *net.TCPConn) {
		endpoints.Add(1)
		defer endpoints.Add(-1)
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		var seed [8]byte
		if _, err := io.ReadFull(c, seed[:]); err != nil {
			return
		}
		both := scripts(binary.BigEndian.Uint64(seed[:]))
		fault("endpoint", binary.BigEndian.Uint64(seed[:]), play(c, both[endpoint], both[client]))
	})
	r, p, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{closedPort(t), to}})
	descriptors := countDescriptors(t)
	first := rand.Uint64()
	t.Log("first seed", first)
	var clients sync.WaitGroup
	for worker := range 16 {
		clients.Go(func() {
			for i := range 40 {
				seed := first + uint64(worker*1000+i)
				c, err := net.Dial("tcp", addr.String())
				if err != nil {
					fault("client", seed, err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				_, _ = c.Write(binary.BigEndian.AppendUint64(nil, seed))
				both := scripts(seed)
				fault("client", seed, play(c.(*net.TCPConn), both[client], both[endpoint]))
				c.Close()
			}
		})
	}
	clients.Wait()
	eventually(t, "all connections are gone", func() bool { return r.Stats().Active == 0 && endpoints.Load() == 0 })
	p.Stop()
	if err := r.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	eventually(t, "the descriptors are closed", func() bool { return countDescriptors(t) <= descriptors })
}

func countDescriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

func TestManyConnections(t *testing.T) {
	const count = 1000
	r, _, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{server(t, echo)}})
	conns := make([]*net.TCPConn, count)
	for i := range conns {
		conns[i] = dialTCP(t, addr)
	}
	for round := range 2 {
		for i, c := range conns {
			exchange(t, c, fmt.Sprint(round, i))
		}
	}
	if s := r.Stats(); s.Active != count || s.Accepted != count {
		t.Errorf("stats %+v", s)
	}
	for _, c := range conns {
		c.Close()
	}
	eventually(t, "all are gone", func() bool { return r.Stats().Active == 0 })
}
