package relay

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// randomReader is a reader that returns pseudo-random bytes and hashes them.
type randomReader struct {
	rng  *rand.ChaCha8
	left int
	sum  hash.Hash
}

func newNoise(seed byte, n int) *randomReader {
	return &randomReader{rng: rand.NewChaCha8([32]byte{seed}), left: n, sum: sha256.New()}
}

func (n *randomReader) Read(p []byte) (int, error) {
	if n.left == 0 {
		return 0, io.EOF
	}
	p = p[:min(len(p), n.left)]
	_, _ = n.rng.Read(p)
	n.sum.Write(p)
	n.left -= len(p)
	return len(p), nil
}

// readSlowly pauses between reads so that the sender must wait.
func readSlowly(r io.Reader, pause time.Duration) (hash.Hash, error) {
	sum, buf := sha256.New(), make([]byte, 512<<10)
	for {
		n, err := r.Read(buf)
		sum.Write(buf[:n])
		if errors.Is(err, io.EOF) {
			return sum, nil
		}
		if err != nil {
			return sum, err
		}
		time.Sleep(pause)
	}
}

func duplex(c *net.TCPConn, seed byte, size int, pause time.Duration) (sent, got string, err error) {
	out := newNoise(seed, size)
	writeErr := make(chan error, 1)
	go func() {
		_, err := io.CopyBuffer(struct{ io.Writer }{c}, out, make([]byte, 200<<10))
		writeErr <- errors.Join(err, c.CloseWrite())
	}()
	sum, err := readSlowly(c, pause)
	err = errors.Join(err, <-writeErr)
	return fmt.Sprintf("%x", out.sum.Sum(nil)), fmt.Sprintf("%x", sum.Sum(nil)), err
}

func TestLargeTransfersWithSlowReaders(t *testing.T) {
	type result struct {
		sent, got string
		err       error
	}
	const size = 40 << 20
	results := make(chan result, 1)
	r, _, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{server(t, func(c *net.TCPConn) {
		defer c.Close()
		sent, got, err := duplex(c, 1, size, time.Millisecond)
		results <- result{sent, got, err}
	})}})
	c := dialTCP(t, addr)
	sent, got, err := duplex(c, 2, size, 2*time.Millisecond)
	other := <-results
	if err != nil || other.err != nil {
		t.Fatal(err, other.err)
	}
	if sent != other.got || got != other.sent {
		t.Error("bytes changed on their way")
	}
	eventually(t, "the connection is gone", func() bool { return r.Stats().Active == 0 })
	if s := r.Stats(); s.ToEndpoint != size || s.ToClient != size || s.Resets != 0 {
		t.Errorf("stats %+v", s)
	}
}

// If the receiver does not read, the sender blocks, because the relay does not buffer data.
func TestBackpressure(t *testing.T) {
	release := make(chan struct{})
	_, _, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{server(t, func(c *net.TCPConn) {
		defer c.Close()
		<-release
		_, _ = io.Copy(io.Discard, c)
	})}})
	c := dialTCP(t, addr)
	_ = c.SetWriteBuffer(64 << 10)
	var written int
	buf := make([]byte, 64<<10)
	for {
		_ = c.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := c.Write(buf)
		written += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if written > 256<<20 {
			t.Fatal("256 MB went to nobody")
		}
	}
	close(release)
	_ = c.SetWriteDeadline(time.Now().Add(20 * time.Second))
	if _, err := c.Write(make([]byte, 1<<20)); err != nil {
		t.Fatal(err)
	}
}

func TestStuckStreamsDoNotBlockOthers(t *testing.T) {
	const flows, size = 48, 1 << 20
	release := make(chan struct{})
	_, _, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{server(t, func(c *net.TCPConn) {
		defer c.Close()
		_ = c.SetReadBuffer(16 << 10)
		<-release
		sum, _ := readSlowly(c, 0)
		_, _ = fmt.Fprintf(c, "%x", sum.Sum(nil))
	})}})
	var all sync.WaitGroup
	for i := range flows {
		c := dialTCP(t, addr)
		all.Go(func() {
			out := newNoise(byte(i), size)
			_, _ = io.CopyBuffer(struct{ io.Writer }{c}, out, make([]byte, 128<<10))
			_ = c.CloseWrite()
			if got, err := io.ReadAll(c); err != nil || string(got) != fmt.Sprintf("%x", out.sum.Sum(nil)) {
				t.Errorf("flow %d: %q, %v", i, got, err)
			}
		})
	}
	time.Sleep(300 * time.Millisecond)
	close(release)
	all.Wait()
}

// The relay forwards the data before and after an urgent byte. An urgent byte that the relay has not read becomes
// normal data when the next urgent byte arrives.
func TestUrgentBytesDuringTransfer(t *testing.T) {
	const block, blocks = 1 << 20, 8
	got := make(chan int64, 1)
	_, _, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{server(t, func(c *net.TCPConn) {
		defer c.Close()
		n, _ := io.Copy(io.Discard, c)
		got <- n
	})}})
	c := dialTCP(t, addr)
	for range blocks {
		if _, err := c.Write(make([]byte, block)); err != nil {
			t.Fatal(err)
		}
		sendUrgent(t, c)
	}
	_ = c.CloseWrite()
	if n := <-got; n < block*blocks || n > (block+1)*blocks {
		t.Errorf("the endpoint received %d bytes", n)
	}
}

// An urgent byte at the end of a stream does not reset the connection, so all data in the opposite direction arrives.
func TestUrgentByteBeforeFIN(t *testing.T) {
	const size = 8 << 20
	_, _, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{server(t, func(c *net.TCPConn) {
		defer c.Close()
		_, _ = io.Copy(io.Discard, c)
		_, _ = c.Write(make([]byte, size))
	})}})
	c := dialTCP(t, addr)
	if _, err := c.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	sendUrgent(t, c)
	_ = c.CloseWrite()
	time.Sleep(300 * time.Millisecond) // the relay closes the connection while this client has read little
	if n, err := io.Copy(io.Discard, c); n != size || err != nil {
		t.Errorf("received %d of %d bytes: %v", n, size, err)
	}
}

func sendUrgent(t *testing.T, c *net.TCPConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	sent := raw.Write(func(fd uintptr) bool {
		err = unix.Sendto(int(fd), []byte{'!'}, unix.MSG_OOB, nil)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err = errors.Join(sent, err); err != nil {
		t.Fatal(err)
	}
}

// The total size of all pipes stays below the kernel's limit for a user, and a pipe that replaces a closed pipe has the
// same size.
func TestPipeSizes(t *testing.T) {
	var pool pipePool
	var taken []pipe
	total := 0
	for p, ok := pool.take(); ok; p, ok = pool.take() {
		taken, total = append(taken, p), total+p.size
	}
	if len(taken) != pipeLimit() || total >= 64<<20 {
		t.Errorf("%d pipes with %d bytes", len(taken), total)
	}
	for _, i := range []int{0, len(taken) - 1} {
		pool.put(taken[i], false)
		again, ok := pool.take()
		if !ok || again.size != taken[i].size {
			t.Errorf("a pipe of %d bytes instead of %d", again.size, taken[i].size)
		}
		taken[i] = again
	}
	for _, p := range taken {
		pool.put(p, true)
	}
	pool.closeAll()
}
