package control

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/daemon/doctor"
	"edgeway/daemon/pipeline"
)

// bigState returns a State whose plan is about 1 MB of JSON, more than the kernel buffers for a Unix socket.
func bigState() pipeline.State {
	p := testPlan()
	web := p.Services[1]
	for i := range 1500 {
		svc := *web
		svc.Name.Name = fmt.Sprintf("web-%d", i)
		p.Services = append(p.Services, &svc)
	}
	return pipeline.State{Plan: p, AppliedPlan: p}
}

func serveLimited(t *testing.T, l limits) (c *Client, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s")
	state := bigState()
	s, err := Listen(Options{
		Socket: path, Logger: slog.New(slog.DiscardHandler), Lookups: testLookups(),
		State:  func() pipeline.State { return state },
		Status: func() Status { return Status{Version: "1.2.3"} },
	})
	if err != nil {
		t.Fatal(err)
	}
	s.limits = l
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return NewClient(path), path
}

// connectNonReaders connects clients that request the plan but never read the response.
func connectNonReaders(t *testing.T, path string, n int) (clients []*net.UnixConn) {
	t.Helper()
	for range n {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		_, _ = io.WriteString(c, "GET /v1/plan HTTP/1.1\r\nHost: edgeway\r\n\r\n") // fails if the server has closed c
		clients = append(clients, c)
	}
	return clients
}

// countOpen counts the clients that the server has not disconnected.
func countOpen(t *testing.T, clients []*net.UnixConn) (n int) {
	t.Helper()
	for _, c := range clients {
		raw, err := c.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Control(func(fd uintptr) {
			poll := []unix.PollFd{{Fd: int32(fd)}}
			for _, err = unix.Poll(poll, 0); errors.Is(err, unix.EINTR); {
				_, err = unix.Poll(poll, 0)
			}
			if poll[0].Revents&unix.POLLHUP == 0 {
				n++
			}
		}); err != nil {
			t.Fatal(err)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return n
}

func eventually(t *testing.T, clients []*net.UnixConn, most int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); countOpen(t, clients) > most; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("the server still has %d connections open, want %d at most", countOpen(t, clients), most)
		}
	}
}

// heapSize returns the heap size after a garbage collection.
func heapSize() int64 {
	for range 3 { // a sync.Pool keeps its content for two collections
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Two hundred clients that never read the response use only 16 connections, make the server build only one response,
// and do not delay other clients.
func TestStalledClientsShareOneAnswer(t *testing.T) {
	l := defaultLimits
	l.turnTimeout, l.answerTimeout = time.Hour, time.Hour
	c, path := serveLimited(t, l)
	empty := heapSize()
	first := connectNonReaders(t, path, 1)
	awaitAnswer(t, first[0])
	one := heapSize() - empty
	if one < 500_000 {
		t.Fatalf("one answer takes %d bytes: this test sees nothing", one)
	}
	crowd := append(first, connectNonReaders(t, path, 199)...)
	eventually(t, crowd, l.maxConnections)
	if n := countOpen(t, crowd); n != l.maxConnections {
		t.Errorf("%d of %d connections are open, want %d", n, len(crowd), l.maxConnections)
	}
	time.Sleep(200 * time.Millisecond)          // the server must not build more responses while the test sleeps
	if all := heapSize() - empty; all > 6*one { // a response may grow while the server sends the previous one
		t.Errorf("%d clients take %d bytes, and one takes %d", len(crowd), all, one)
	}
	if s, err := c.Status(t.Context()); err != nil || s.Version != "1.2.3" {
		t.Errorf("status beside the crowd: %+v %v", s, err)
	}
}

// awaitAnswer waits for the beginning of the response without reading any data.
func awaitAnswer(t *testing.T, c *net.UnixConn) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Read(func(fd uintptr) bool {
		n, _, _ := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_PEEK|unix.MSG_DONTWAIT)
		return n > 0
	}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(100 * time.Millisecond) // give the server time to fill the rest of the buffer
}

// The server closes the connections to clients that do not read the response. Once the server has closed a stalled
// connection, the next waiting command receives a response.
func TestTimeoutsCloseStalledConnections(t *testing.T) {
	l := defaultLimits
	// On a busy host, a client that reads its response may need seconds to send a header and to read 1 MB.
	l.headerTimeout, l.turnTimeout, l.answerTimeout = 2*time.Second, 100*time.Millisecond, 5*time.Second
	c, path := serveLimited(t, l)
	silent, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	crowd := append(connectNonReaders(t, path, l.maxConnections-1), silent.(*net.UnixConn))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wantPlan := func(when string) {
		t.Helper()
		if p, err := c.Plan(ctx, ""); err != nil {
			t.Errorf("plan %s: %v", when, err)
		} else if len(p.Services) < 1500 {
			t.Errorf("plan %s: %d Services", when, len(p.Services))
		}
	}
	wantPlan("beside clients that do not read")
	if s, err := c.Status(ctx); err != nil || s.Version != "1.2.3" {
		t.Errorf("status beside clients that do not read: %+v %v", s, err)
	}
	eventually(t, crowd, 0)
	wantPlan("afterwards")
}

func TestSilentClientIsDisconnected(t *testing.T) {
	l := defaultLimits
	l.headerTimeout = 300 * time.Millisecond
	_, path := serveLimited(t, l)
	for _, request := range []string{"", "GET /v1/status HTTP/1.1\r\n"} {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_, _ = io.WriteString(c, request)
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, c); err != nil {
			t.Errorf("after %q: %v, want the end of the connection", request, err)
		}
	}
}

func TestSlowReaderIsDisconnected(t *testing.T) {
	l := defaultLimits
	l.answerTimeout = 500 * time.Millisecond
	_, path := serveLimited(t, l)
	slow := connectNonReaders(t, path, 1)
	for buf, read := make([]byte, 1000), 0; countOpen(t, slow) > 0; time.Sleep(20 * time.Millisecond) {
		n, err := slow[0].Read(buf)
		if err != nil {
			break
		}
		if read += n; read > 500_000 {
			t.Fatalf("the connection is still open after %d bytes", read)
		}
	}
}

func TestClientReportsClosedConnection(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 4096))
			_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
			conn.Close()
		}
	}()
	if _, err := NewClient(path).Status(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "closed the connection") {
		t.Errorf("cut off: %v", err)
	}
}

// Members of the socket's group who constantly request large responses delay each other, but not root.
func TestRootIsNotDelayedByGroupMembers(t *testing.T) {
	state := bigState()
	s := newServer(Options{
		Logger: slog.New(slog.DiscardHandler), Lookups: testLookups(),
		Position: noPlace, DeadEndpoints: noneDead, Connections: noneCounted,
		State: func() pipeline.State { return state },
		Facts: func() doctor.Facts { return doctor.Facts{} },
	}, nil)
	s.groupTurn <- struct{}{}
	for _, path := range []string{"/v1/plan", "/v1/services", "/v1/facts"} {
		for uid, want := range map[uint32]int{4711: http.StatusServiceUnavailable, 0: http.StatusOK} {
			// With a short timeout, select could pick the timeout although root's turn is free.
			s.limits.turnTimeout = map[uint32]time.Duration{4711: time.Millisecond, 0: time.Minute}[uid]
			r := httptest.NewRequest(http.MethodGet, path, nil)
			w := httptest.NewRecorder()
			s.handler().ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), peerKey{}, uid)))
			if w.Code != want {
				t.Errorf("%s, user %d: status %d, want %d", path, uid, w.Code, want)
			}
		}
	}
}
