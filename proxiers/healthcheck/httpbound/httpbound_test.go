package httpbound

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// pipeListener is an in-memory listener for tests with fake time.
type pipeListener struct {
	accept chan net.Conn
	closed chan struct{}
}

func (p *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-p.accept:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipeListener) Close() error   { close(p.closed); return nil }
func (p *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

// fakeConn is the server's side of a connection with a fake client address.
type fakeConn struct {
	net.Conn
	from net.Addr
}

func (p fakeConn) RemoteAddr() net.Addr { return p.from }

func (p *pipeListener) dial(from string) net.Conn {
	addr, err := net.ResolveTCPAddr("tcp", from)
	if err != nil {
		panic(err)
	}
	near, far := net.Pipe()
	p.accept <- fakeConn{far, addr}
	synctest.Wait()
	return near
}

func serve(t *testing.T, most int, handler http.Handler, test func(*testing.T, *pipeListener)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pipeListener{make(chan net.Conn), make(chan struct{})}
		server := Server(handler, slog.New(slog.DiscardHandler))
		done := make(chan error)
		go func() { done <- server.Serve(NewLimit(most).Listener(p)) }()
		test(t, p)
		server.Close()
		if err := <-done; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") })

// timeRequest sends a request and returns the response and the time until the server closed the connection.
func timeRequest(conn net.Conn, request string) (after time.Duration, answer string) {
	start := time.Now()
	got := make(chan string)
	go func() {
		raw, _ := io.ReadAll(conn) // returns when the server closes the connection
		got <- string(raw)
	}()
	_, _ = io.WriteString(conn, request) // the server may not read the whole request
	answer = <-got
	return time.Since(start), answer
}

func TestSlowClientsAreDisconnected(t *testing.T) {
	for name, c := range map[string]struct {
		request string
		longest time.Duration
		answer  string
	}{
		"nothing":            {"", requestTimeout, ""},
		"half a request":     {"GET / HTTP/1.1\r\nHost: x\r\n", requestTimeout, ""},
		"idle":               {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", idleTimeout, "hello"},
		"a body to come":     {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\nx", 0, "hello"},
		"a huge body":        {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 20000000000\r\n\r\nx", time.Second, "hello"},
		"chunks to come":     {"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx", 0, "hello"},
		"a body that waits":  {"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n", 0, "hello"},
		"large headers":      {"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 60<<10) + "\r\n\r\n", time.Second, "431 Request Header Fields Too Large"},
		"half large headers": {"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 60<<10), time.Second, "431 Request Header Fields Too Large"},
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, 10, hello, func(t *testing.T, p *pipeListener) {
				after, answer := timeRequest(p.dial("192.0.2.1:1"), c.request)
				if after > c.longest || !strings.Contains(answer, c.answer) {
					t.Errorf("open for %s, want at most %s; answer %q", after, c.longest, answer)
				}
				if strings.Contains(c.request, "POST") && !strings.Contains(answer, "Connection: close") {
					t.Errorf("the client is not told that the connection ends: %q", answer)
				}
			})
		})
	}
}

func TestClientThatDoesNotReadIsDisconnected(t *testing.T) {
	endless := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for {
			if _, err := w.Write(make([]byte, 4096)); err != nil {
				return
			}
		}
	})
	serve(t, 10, endless, func(t *testing.T, p *pipeListener) {
		conn := p.dial("192.0.2.1:1")
		if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(responseTimeout + time.Second)
		if _, err := conn.Write([]byte("x")); err == nil {
			t.Error("the connection is still open")
		}
	})
}

func TestLongProfileIsNotCutOff(t *testing.T) {
	serve(t, 10, pprof.Handler("goroutine"), func(t *testing.T, p *pipeListener) {
		conn := p.dial("127.0.0.1:1")
		defer conn.Close()
		go func() {
			_, _ = io.WriteString(conn, "GET /?seconds=30 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		}()
		start := time.Now()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if n, err := io.Copy(io.Discard, resp.Body); err != nil || n == 0 || time.Since(start) < 30*time.Second {
			t.Errorf("%d bytes after %s: %v", n, time.Since(start), err)
		}
	})
}

func (p *pipeListener) hold(from string, n int) (conns []net.Conn) {
	for i := range n {
		conns = append(conns, p.dial(fmt.Sprintf("%s:%d", from, 1000+i)))
	}
	return conns
}

// countOpen returns, without blocking, the number of connections that the server has not closed.
func countOpen(conns []net.Conn) (n int) {
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now())
		if _, err := c.Read(make([]byte, 1)); errors.Is(err, io.EOF) {
			continue
		}
		n++
	}
	return n
}

func TestBusiestClientLosesConnections(t *testing.T) {
	serve(t, 10, hello, func(t *testing.T, p *pipeListener) {
		few := p.hold("192.0.2.1", 2)
		many := p.hold("192.0.2.2", 20)
		if a, b := countOpen(few), countOpen(many); a != 2 || b != 8 {
			t.Errorf("%d and %d connections are open, want 2 and 8", a, b)
		}
		if countOpen(many[:12]) != 0 {
			t.Error("it was not the oldest ones that made room")
		}
		probe := p.dial("127.0.0.1:1")
		_, answer := timeRequest(probe, "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
		if !strings.Contains(answer, "hello") {
			t.Errorf("a probe gets %q while the server is full", answer)
		}
		if a, b := countOpen(few), countOpen(many); a != 2 || b != 7 {
			t.Errorf("after a probe %d and %d connections are open, want 2 and 7", a, b)
		}
	})
}

// Connections from several IPv6 addresses in the same network count as one client's connections. The limit counts only
// open connections.
func TestClientsAreCountedByPrefix(t *testing.T) {
	serve(t, 10, hello, func(t *testing.T, p *pipeListener) {
		few := p.hold("[2001:db8:0:1::1]", 2)
		var many []net.Conn
		for i := range 20 {
			many = append(many, p.dial(fmt.Sprintf("[2001:db8::%x]:1", i)))
		}
		if a, b := countOpen(few), countOpen(many); a != 2 || b != 8 {
			t.Errorf("%d and %d connections are open, want 2 and 8", a, b)
		}
		for _, c := range many {
			c.Close()
		}
		synctest.Wait()
		if again := p.hold("192.0.2.1", 8); countOpen(again) != 8 || countOpen(few) != 2 {
			t.Errorf("connections that have ended take room")
		}
	})
}

func TestFromHere(t *testing.T) {
	for from, want := range map[string]bool{
		"127.0.0.1:1": true, "127.9.9.9:1": true, "[::1]:1": true, "[::ffff:127.0.0.1]:1": true,
		"192.0.2.1:1": false, "[2001:db8::1]:1": false, "[::ffff:192.0.2.1]:1": false, "@": false, "": false,
	} {
		if got := FromLoopback(&http.Request{RemoteAddr: from}); got != want {
			t.Errorf("%q: %t", from, got)
		}
	}
}
