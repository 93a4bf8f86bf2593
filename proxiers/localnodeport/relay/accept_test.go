package relay

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func TestDialFailover(t *testing.T) {
	target := &pool{endpoints: []netip.AddrPort{closedPort(t), closedPort(t), server(t, echo)}}
	r, _, addr := relayTo(t, Options{}, target)
	exchange(t, dialTCP(t, addr), "hello")
	if got := target.failures(); len(got) != 2 || !errors.Is(got[0], syscall.ECONNREFUSED) ||
		!errors.Is(got[1], syscall.ECONNREFUSED) {
		t.Errorf("failures %v", got)
	}
	if s := r.Stats(); s.DialFailures != 2 || s.Retries != 2 || s.NoEndpoint != 0 {
		t.Errorf("stats %+v", s)
	}
}

func TestNoEndpointLeft(t *testing.T) {
	r, _, addr := relayTo(t, Options{}, &pool{endpoints: []netip.AddrPort{closedPort(t), closedPort(t)}})
	if c, err := net.DialTimeout("tcp", addr.String(), 10*time.Second); err == nil {
		expectReset(t, c.(*net.TCPConn))
		c.Close()
	} else if !errors.Is(err, syscall.ECONNRESET) { // the reset may arrive before the dial returns
		t.Fatal(err)
	}
	eventually(t, "the connection is gone", func() bool { return r.Stats().Active == 0 })
	if s := r.Stats(); s.DialFailures != 2 || s.Retries != 1 || s.NoEndpoint != 1 {
		t.Errorf("stats %+v", s)
	}
}

// fullListener returns the address of a socket that does not respond to a SYN, because the socket's accept queue is
// full.
func fullListener(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}),
		unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(sa.(*unix.SockaddrInet4).Port))
	for range 8 {
		c, err := net.DialTimeout("tcp", addr.String(), 200*time.Millisecond)
		if err != nil {
			return addr
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatal("the queue never filled")
	return addr
}

func TestSilentEndpointFailover(t *testing.T) {
	target := &pool{endpoints: []netip.AddrPort{fullListener(t), server(t, echo)}}
	const limit = defaultDialTimeout + 200*time.Millisecond // longer than the default timeout, which must not apply
	_, _, addr := relayTo(t, Options{DialTimeout: limit}, target)
	start := time.Now()
	exchange(t, dialTCP(t, addr), "hello")
	if took := time.Since(start); took < limit || took > 30*time.Second {
		t.Errorf("took %v", took)
	}
	if got := target.failures(); len(got) != 1 || !errors.Is(got[0], os.ErrDeadlineExceeded) {
		t.Errorf("failures %v", got)
	}
}

func TestBytesSentDuringFailover(t *testing.T) {
	_, _, addr := relayTo(t, Options{DialTimeout: 300 * time.Millisecond},
		&pool{endpoints: []netip.AddrPort{fullListener(t), closedPort(t), server(t, echo)}})
	c := dialTCP(t, addr)
	_, _ = io.WriteString(c, "early")
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "early" {
		t.Fatalf("got %q, %v", got, err)
	}
}

func TestSetTarget(t *testing.T) {
	say := func(s string) *pool {
		return &pool{endpoints: []netip.AddrPort{server(t, func(c *net.TCPConn) {
			_, _ = io.WriteString(c, s)
			echo(c)
		})}}
	}
	_, p, addr := relayTo(t, Options{}, say("one"))
	first := dialTCP(t, addr)
	buf := make([]byte, 3)
	if _, err := io.ReadFull(first, buf); err != nil || string(buf) != "one" {
		t.Fatalf("%q, %v", buf, err)
	}
	p.SetTarget(say("two"))
	if _, err := io.ReadFull(dialTCP(t, addr), buf); err != nil || string(buf) != "two" {
		t.Fatalf("%q, %v", buf, err)
	}
	exchange(t, first, "still there")
}

func TestLimit(t *testing.T) {
	var told atomic.Int32
	r, _, addr := relayTo(t, Options{MaxConnections: 2, OnPause: func(err error) {
		if errors.Is(err, ErrLimit) {
			told.Add(1)
		}
	}}, &pool{endpoints: []netip.AddrPort{server(t, echo)}})
	first, second := dialTCP(t, addr), dialTCP(t, addr)
	exchange(t, first, "a")
	exchange(t, second, "b")
	third := dialTCP(t, addr) // this connection waits in the accept queue
	_, _ = io.WriteString(third, "c")
	_ = third.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if _, err := third.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("third connection: %v, want it to wait", err)
	}
	first.Close()
	_ = third.SetReadDeadline(time.Now().Add(10 * time.Second))
	buf := make([]byte, 1)
	if _, err := io.ReadFull(third, buf); err != nil || buf[0] != 'c' {
		t.Fatalf("%q, %v", buf, err)
	}
	exchange(t, second, "unharmed")
	if s := r.Stats(); told.Load() != 1 || s.LimitPauses != 1 || s.Active != 2 {
		t.Errorf("told %d times, stats %+v", told.Load(), s)
	}
}

func TestStopKeepsConnectionsAndQueue(t *testing.T) {
	r := newRelay(t, Options{})
	l := listen(t, "127.0.0.1:0")
	target := &pool{endpoints: []netip.AddrPort{server(t, echo)}}
	for range 10 {
		p := serve(t, r, l, target)
		running := dialTCP(t, addrOf(l))
		exchange(t, running, "before")
		p.Stop()
		p.Stop()
		accepted := r.Stats().Accepted
		queued := dialTCP(t, addrOf(l))
		_, _ = io.WriteString(queued, "x")
		exchange(t, running, "after")
		time.Sleep(10 * time.Millisecond)
		if now := r.Stats().Accepted; now != accepted {
			t.Fatalf("accepted %d while stopped", now-accepted)
		}
		other := newRelay(t, Options{})
		next := serve(t, other, l, target)
		if _, err := io.ReadFull(queued, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		next.Stop()
		exchange(t, running, "after all")
	}
}

// Calling shutdown(2) on a listening socket does not cause a busy loop or delay other sockets.
func TestShutDownListener(t *testing.T) {
	target := &pool{endpoints: []netip.AddrPort{server(t, echo)}}
	r, _, addr := relayTo(t, Options{}, target)
	l := listen(t, "127.0.0.1:0")
	p := serve(t, r, l, target)
	raw, err := l.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	_ = raw.Control(func(fd uintptr) { err = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range 10 {
		exchange(t, dialTCP(t, addr), "other port")
	}
	if took := time.Since(start); took > 30*time.Second || r.Stats().DescriptorPauses != 0 {
		t.Errorf("took %v, stats %+v", took, r.Stats())
	}
	p.Stop()
}

// runOutOfDescriptors is the part of TestOutOfDescriptors that runs in a child process.
func runOutOfDescriptors() error {
	var rlimit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &rlimit); err != nil {
		return err
	}
	rlimit.Cur = 64
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &rlimit); err != nil {
		return err
	}
	to, err := netip.ParseAddrPort(os.Getenv("RELAY_TEST_ENDPOINT"))
	if err != nil {
		return err
	}
	r := New(Options{MaxConnections: 1000, OnPause: func(err error) { fmt.Println("paused:", err) }})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	f, err := l.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	if _, err := r.Serve(f, &pool{endpoints: []netip.AddrPort{to}}); err != nil {
		return err
	}
	fmt.Println(l.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	var usage unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &usage)
	fmt.Println("cpu:", time.Duration(usage.Utime.Nano()+usage.Stime.Nano()))
	fmt.Printf("%+v\n", r.Stats())
	return nil
}

func TestMain(m *testing.M) {
	if os.Getenv("RELAY_TEST_ENDPOINT") != "" {
		if err := runOutOfDescriptors(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestOutOfDescriptors(t *testing.T) {
	child := exec.Command(os.Args[0])
	child.Env = append(os.Environ(), "RELAY_TEST_ENDPOINT="+server(t, echo).String())
	child.Stderr = os.Stderr
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = child.Process.Kill() })
	lines := make(chan string, 8)
	go func() {
		defer close(lines)
		for out := bufio.NewScanner(stdout); out.Scan(); {
			lines <- out.Text()
		}
	}()
	addr, err := netip.ParseAddrPort(<-lines)
	if err != nil {
		t.Fatal(err)
	}
	served, last, paused := openUntilPause(t, addr, lines)
	if len(served) < 6 || !strings.HasPrefix(paused, "paused: out of descriptors: too many open files") {
		t.Fatalf("%d served, then %q", len(served), paused)
	}
	waiting := []*net.TCPConn{last}
	for range 3 {
		c := dialTCP(t, addr)
		_, _ = io.WriteString(c, "x")
		waiting = append(waiting, c)
	}
	time.Sleep(2 * time.Second) // a busy loop would use most of the two seconds of CPU time
	for _, c := range waiting[1:] {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("without a descriptor: %v", err)
		}
	}
	for _, c := range served[4:] {
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		exchange(t, c, "unharmed")
	}
	for _, c := range served[:4] {
		c.Close()
	}
	for _, c := range waiting {
		_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			t.Fatal("after descriptors are free:", err)
		}
	}
	stdin.Close()
	var rest []string
	for line := range lines {
		rest = append(rest, line)
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	if len(rest) != 2 {
		t.Fatalf("output %q: want no other report, the CPU time and the counts", rest)
	}
	cpu, err := time.ParseDuration(strings.TrimPrefix(rest[0], "cpu: "))
	if err != nil || cpu > time.Second {
		t.Errorf("CPU time %v, %v", cpu, err)
	}
	if !strings.Contains(rest[1], "DescriptorPauses:1 ") {
		t.Errorf("counts %s", rest[1])
	}
}

// openUntilPause opens connections and reads their responses until the relay reports a pause. openUntilPause does not
// read from the last connection, which the relay may or may not have accepted.
func openUntilPause(
	t *testing.T, addr netip.AddrPort, reports <-chan string,
) (served []*net.TCPConn, last *net.TCPConn, report string) {
	t.Helper()
	for range 60 {
		c := dialTCP(t, addr)
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.WriteString(c, "x")
		answered := make(chan error, 1)
		go func() {
			answered <- raw.Read(func(fd uintptr) bool {
				_, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
				return !errors.Is(err, unix.EAGAIN)
			})
		}()
		select {
		case err := <-answered:
			if err == nil {
				_, err = c.Read(make([]byte, 1))
			}
			if err != nil {
				t.Fatalf("connection %d: %v", len(served), err)
			}
			served = append(served, c)
		case report = <-reports:
			_ = c.SetReadDeadline(time.Now()) // the deadline ends the read in the goroutine
			<-answered
			return served, c, report
		}
	}
	return served, nil, ""
}
