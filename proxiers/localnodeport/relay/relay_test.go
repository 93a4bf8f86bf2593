package relay

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/contain"
)

// pool is a Target that tries endpoints in order.
type pool struct {
	endpoints []netip.AddrPort

	mu     sync.Mutex
	failed []error
	client netip.AddrPort
}

func (p *pool) Pick(client netip.AddrPort, tried []netip.AddrPort) (netip.AddrPort, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.client = client
	for _, e := range p.endpoints {
		if !slices.Contains(tried, e) {
			return e, true
		}
	}
	return netip.AddrPort{}, false
}

func (p *pool) Failed(_ netip.AddrPort, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failed = append(p.failed, err)
}

func (p *pool) failures() []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.failed)
}

func listen(t testing.TB, addr string) *net.TCPListener {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*net.TCPListener)
}

func addrOf(l net.Listener) netip.AddrPort { return l.Addr().(*net.TCPAddr).AddrPort() }

// closedPort returns an address that refuses connections. A socket is bound to the address but does not listen, so no
// other program can listen on the address.
func closedPort(t testing.TB) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(name.(*unix.SockaddrInet4).Port))
}

func server(t testing.TB, handle func(*net.TCPConn)) netip.AddrPort {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	go func() {
		for {
			c, err := l.AcceptTCP()
			if err != nil {
				return
			}
			go handle(c)
		}
	}()
	return addrOf(l)
}

func echo(c *net.TCPConn) {
	_, _ = io.Copy(c, c)
	c.Close()
}

func relayTo(t testing.TB, opts Options, target Target) (*Relay, *Port, netip.AddrPort) {
	t.Helper()
	r := newRelay(t, opts)
	l := listen(t, "127.0.0.1:0")
	return r, serve(t, r, l, target), addrOf(l)
}

func serve(t testing.TB, r *Relay, l *net.TCPListener, target Target) *Port {
	t.Helper()
	f, err := l.File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p, err := r.Serve(f, target)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newRelay(t testing.TB, opts Options) *Relay {
	t.Helper()
	opts.OnPanic = func(err error) { t.Errorf("%v\n%s", err, contain.Stack(err)) }
	r := New(opts)
	t.Cleanup(func() { _ = r.Shutdown(done()) })
	return r
}

func done() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func dialTCP(t testing.TB, to netip.AddrPort) *net.TCPConn {
	t.Helper()
	c, err := net.DialTimeout("tcp", to.String(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn)
}

func exchange(t testing.TB, c *net.TCPConn, text string) {
	t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		t.Fatalf("sent %q, got %q, %v", text, got, err)
	}
}

func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: " + what)
		}
	}
}

func expectReset(t testing.TB, c *net.TCPConn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read: %v, want a reset", err)
	}
}

func TestClientHalfClose(t *testing.T) {
	target := &pool{endpoints: []netip.AddrPort{server(t, func(c *net.TCPConn) {
		defer c.Close()
		all, _ := io.ReadAll(c) // ReadAll returns after the client's half-close
		_, _ = io.WriteString(c, "got "+string(all))
	})}}
	r, _, addr := relayTo(t, Options{}, target)
	c := dialTCP(t, addr)
	_, _ = io.WriteString(c, "question")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if answer, err := io.ReadAll(c); err != nil || string(answer) != "got question" {
		t.Fatalf("got %q, %v", answer, err)
	}
	eventually(t, "the connection is gone", func() bool { return r.Stats().Active == 0 })
	want := Stats{Accepted: 1, ToEndpoint: 8, ToClient: 12}
	if got := r.Stats(); got != want {
		t.Errorf("stats %+v, want %+v", got, want)
	}
	if target.client != c.LocalAddr().(*net.TCPAddr).AddrPort() {
		t.Errorf("Pick saw client %v, want %v", target.client, c.LocalAddr())
	}
}

func TestEndpointHalfClose(t *testing.T) {
	got := make(chan string, 1)
	_, _, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{server(t, func(c *net.TCPConn) {
		defer c.Close()
		_, _ = io.WriteString(c, "bye")
		_ = c.CloseWrite()
		all, _ := io.ReadAll(c)
		got <- string(all)
	})}})
	c := dialTCP(t, addr)
	if all, err := io.ReadAll(c); err != nil || string(all) != "bye" {
		t.Fatalf("got %q, %v", all, err)
	}
	_, _ = io.WriteString(c, "still here")
	c.Close()
	if s := <-got; s != "still here" {
		t.Fatalf("endpoint got %q", s)
	}
}

func TestClientReset(t *testing.T) {
	got := make(chan error, 1)
	r, _, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{server(t, func(c *net.TCPConn) {
		defer c.Close()
		_, _ = io.CopyN(c, c, 1)
		_, err := io.Copy(io.Discard, c)
		got <- err
	})}})
	c := dialTCP(t, addr)
	exchange(t, c, "x")
	_ = c.SetLinger(0)
	c.Close()
	if err := <-got; !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("endpoint read: %v, want a reset", err)
	}
	eventually(t, "the reset is counted", func() bool { return r.Stats().Resets == 1 })
}

func TestEndpointReset(t *testing.T) {
	_, _, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{server(t, func(c *net.TCPConn) {
		_, _ = io.CopyN(c, c, 1)
		_ = c.SetLinger(0)
		c.Close()
	})}})
	c := dialTCP(t, addr)
	exchange(t, c, "x")
	expectReset(t, c)
}

func TestResetAfterHalfClose(t *testing.T) {
	_, _, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{server(t, func(c *net.TCPConn) {
		_, _ = io.Copy(io.Discard, c)
		_ = c.SetLinger(0)
		c.Close()
	})}})
	c := dialTCP(t, addr)
	_ = c.CloseWrite()
	expectReset(t, c)
}

func TestIPv6AndMixedFamilies(t *testing.T) {
	l := listen(t, "[::1]:0")
	r := newRelay(t, Options{})
	serve(t, r, l, &pool{endpoints: []netip.AddrPort{server(t, echo)}})
	exchange(t, dialTCP(t, addrOf(l)), "from ::1 to 127.0.0.1")

	six := listen(t, "[::1]:0")
	go func() {
		for {
			c, err := six.AcceptTCP()
			if err != nil {
				return
			}
			go echo(c)
		}
	}()
	_, _, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{addrOf(six)}})
	exchange(t, dialTCP(t, addr), "from 127.0.0.1 to ::1")
}

func TestServeRefusesOtherSockets(t *testing.T) {
	r := newRelay(t, Options{})
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	f, err := udp.(*net.UDPConn).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := r.Serve(f, &pool{}); err == nil {
		t.Error("a UDP socket is served")
	}
}

// The relay closes an idle half-closed connection, because an endpoint that does not read may not notice that the
// client has disconnected.
func TestIdleHalfClosedConnectionEnds(t *testing.T) {
	got := make(chan error, 1)
	r, _, addr := relayTo(t, Options{HalfClosedTimeout: time.Second},
		&pool{endpoints: []netip.AddrPort{server(t, func(c *net.TCPConn) {
			defer c.Close()
			_, err := io.Copy(io.Discard, c)
			for range 30 { // 3 s of data: longer than the relay may take to close an idle connection
				_, _ = io.WriteString(c, ".")
				time.Sleep(100 * time.Millisecond)
			}
			for err == nil { // simulates an endpoint that waits and tests its connection
				time.Sleep(50 * time.Millisecond)
				_, err = c.SyscallConn()
				if e := pendingError(c); e != nil {
					err = e
				}
			}
			got <- err
		})}})
	c := dialTCP(t, addr)
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 30)
	if _, err := io.ReadFull(c, buf); err != nil {
		t.Fatalf("bytes of a half-closed connection: %v", err)
	}
	expectReset(t, c)
	if err := <-got; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
		t.Errorf("the endpoint sees %v, want a reset", err)
	}
	eventually(t, "the connection is gone", func() bool { return r.Stats().Active == 0 })
}

func pendingError(c *net.TCPConn) (err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	_ = raw.Control(func(fd uintptr) {
		if n, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); n != 0 {
			err = syscall.Errno(n)
		}
	})
	return err
}

func TestLimitFollowsProcessLimits(t *testing.T) {
	r := newRelay(t, Options{})
	before := debug.SetMemoryLimit(64 << 20)
	defer debug.SetMemoryLimit(before)
	if got, want := r.limit(), 64<<20/4/connectionMemory; got != want {
		t.Errorf("with 64 MB: %d connections, want %d", got, want)
	}
	debug.SetMemoryLimit(math.MaxInt64)
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil {
		t.Fatal(err)
	}
	if got := r.limit(); got < 1 || uint64(got)*connectionDescriptors > files.Cur {
		t.Errorf("with %d descriptors: %d connections", files.Cur, got)
	}
}
