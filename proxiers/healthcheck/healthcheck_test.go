package healthcheck

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

type lab struct {
	t        *testing.T
	follower *Proxier
	healthy  atomic.Bool
	log      strings.Builder
	last     *plan.Plan
}

func newLab(t *testing.T) *lab {
	l := &lab{t: t}
	l.healthy.Store(true)
	l.follower = New(Options{
		Logger:  slog.New(slog.NewTextHandler(&l.log, nil)),
		Healthy: l.healthy.Load,
	})
	t.Cleanup(func() {
		if err := l.follower.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}

func (l *lab) apply(addrs []string, checks ...*plan.HealthCheck) error {
	next := &plan.Plan{Node: &plan.Node{}, HealthChecks: checks}
	for _, a := range addrs {
		next.Node.NodePortAddrs = append(next.Node.NodePortAddrs, netip.MustParseAddr(a))
	}
	err := l.follower.Apply(l.t.Context(), proxiers.NewChange(l.last, next))
	l.last = next
	if err != nil {
		l.last = nil
	}
	return err
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// chosenPorts contains the ports that freePort has returned. The kernel may offer a port again after it is closed.
var chosenPorts sync.Map

// freePort returns a free port, and a different one at each call.
func freePort(t *testing.T) uint16 {
	t.Helper()
	for {
		probe, err := net.Listen("tcp", "127.0.0.2:0")
		if err != nil {
			t.Fatal(err)
		}
		_ = probe.Close()
		port := netip.MustParseAddrPort(probe.Addr().String()).Port()
		if _, chosen := chosenPorts.LoadOrStore(port, true); !chosen {
			return port
		}
	}
}

func hostPort(addr string, port uint16) string {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), port).String()
}

func get(addr string, port uint16) (int, http.Header, string) {
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get(fmt.Sprintf("http://%s/any/path?x=1", hostPort(addr, port)))
	if err != nil {
		return 0, nil, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, nil, err.Error()
	}
	return resp.StatusCode, resp.Header, string(body)
}

const one = "127.0.0.2"

func TestAnswerMatchesKubeProxy(t *testing.T) {
	l := newLab(t)
	port := freePort(t)
	l.must(l.apply([]string{one}, &plan.HealthCheck{Namespace: "default", Name: "lb", Port: port, LocalReady: 1}))
	for _, method := range []string{"GET", "POST", "OPTIONS"} {
		conn, err := net.Dial("tcp", hostPort(one, port))
		if err != nil {
			t.Fatal(err)
		}
		target := "/x//y"
		if method == "OPTIONS" {
			target = "*"
		}
		if _, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", method,
			target); err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(conn)
		if err != nil {
			t.Fatal(err)
		}
		head, body, _ := strings.Cut(string(raw), "\r\n\r\n")
		const want = `{
	"service": {
		"namespace": "default",
		"name": "lb"
	},
	"localEndpoints": 1,
	"serviceProxyHealthy": true
}`
		if body != want {
			t.Errorf("%s: body\n%q, want\n%q", method, body, want)
		}
		for _, line := range []string{
			"HTTP/1.1 200 OK\r\n", "\r\nContent-Type: application/json\r\n",
			"\r\nX-Content-Type-Options: nosniff\r\n", "\r\nX-Load-Balancing-Endpoint-Weight: 1\r\n",
		} {
			if !strings.Contains(head+"\r\n", line) {
				t.Errorf("%s: no %q in\n%s", method, line, head)
			}
		}
	}
}

func TestUnhealthyWithoutEndpointOrProxy(t *testing.T) {
	l := newLab(t)
	port := freePort(t)
	for _, c := range []struct {
		local   int
		healthy bool
		code    int
	}{{2, true, 200}, {2, false, 503}, {0, true, 503}, {0, false, 503}, {3, true, 200}} {
		l.healthy.Store(c.healthy)
		l.must(l.apply([]string{one}, &plan.HealthCheck{Namespace: "a", Name: "b", Port: port, LocalReady: c.local}))
		code, header, body := get(one, port)
		if code != c.code || header.Get("X-Load-Balancing-Endpoint-Weight") != fmt.Sprint(c.local) ||
			!strings.HasSuffix(body, fmt.Sprintf("\t\"localEndpoints\": %d,\n\t\"serviceProxyHealthy\": %t\n}", c.local,
				c.healthy)) {
			t.Errorf("%d local endpoints, healthy %t: %d %v %s", c.local, c.healthy, code, header, body)
		}
	}
}

func TestListenersFollowAddresses(t *testing.T) {
	l := newLab(t)
	port := freePort(t)
	check := &plan.HealthCheck{Namespace: "a", Name: "b", Port: port, LocalReady: 1}
	for _, addrs := range [][]string{
		{one},
		{one, "127.0.0.3"},
		{"127.0.0.3"},
		{"127.0.0.3", "::1", "fe80::1"},
		{},
		{one},
	} {
		l.must(l.apply(addrs, check))
		for _, a := range []string{one, "127.0.0.3", "::1", "127.0.0.4"} {
			want := 0
			for _, x := range addrs {
				if x == a {
					want = 200
				}
			}
			if code, _, body := get(a, port); code != want {
				t.Errorf("addresses %v: %s answers %d (%s), want %d", addrs, a, code, body, want)
			}
		}
	}
}

// An open connection survives a change to the plan, because Apply does not restart the server.
func TestUnchangedServersAreUntouched(t *testing.T) {
	l := newLab(t)
	port, other := freePort(t), freePort(t)
	l.must(l.apply([]string{one}, &plan.HealthCheck{Namespace: "a", Name: "b", Port: port, LocalReady: 1}))
	conn, err := net.Dial("tcp", hostPort(one, port))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	for i := range 3 {
		if _, err := fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4096)
		n, err := conn.Read(buf)
		if err != nil || !strings.Contains(string(buf[:n]), fmt.Sprintf("\"localEndpoints\": %d,", i+1)) {
			t.Fatalf("request %d on one connection: %q %v", i, buf[:n], err)
		}
		l.must(l.apply([]string{one, "127.0.0.3"},
			&plan.HealthCheck{Namespace: "a", Name: "b", Port: port, LocalReady: i + 2},
			&plan.HealthCheck{Namespace: "a", Name: fmt.Sprint(i), Port: other, LocalReady: i}))
	}
}

func TestPortMovesToAnotherService(t *testing.T) {
	l := newLab(t)
	port := freePort(t)
	l.must(l.apply([]string{one}, &plan.HealthCheck{Namespace: "a", Name: "old", Port: port, LocalReady: 1}))
	l.must(l.apply([]string{one}, &plan.HealthCheck{Namespace: "a", Name: "new", Port: port, LocalReady: 1}))
	if code, _, body := get(one, port); code != 200 || !strings.Contains(body, `"name": "new"`) {
		t.Errorf("%d %s", code, body)
	}
}

func TestPortInUseIsRetriedAndLoggedOnce(t *testing.T) {
	l := newLab(t)
	port, free := freePort(t), freePort(t)
	taken, err := net.Listen("tcp", hostPort(one, port))
	if err != nil {
		t.Fatal(err)
	}
	checks := []*plan.HealthCheck{
		{Namespace: "a", Name: "b", Port: port, LocalReady: 1},
		{Namespace: "a", Name: "c", Port: free, LocalReady: 1},
	}
	l.must(l.apply([]string{one}, checks...))
	if code, _, body := get(one, free); code != 200 {
		t.Errorf("a port in use took another one down: %d %s", code, body)
	}
	// While another program uses one port, Apply still updates the servers on other ports.
	l.must(l.apply([]string{one}, checks[0], &plan.HealthCheck{Namespace: "a", Name: "c", Port: free}))
	if code, _, body := get(one, free); code != 503 {
		t.Errorf("after its last local endpoint left: %d %s", code, body)
	}
	if w := l.follower.Faults(); len(w) != 1 || w[0].Object.Name != "a/b" ||
		!strings.HasSuffix(w[0].Message, fmt.Sprintf(":%d: %v", port, syscall.EADDRINUSE)) {
		t.Errorf("waiting: %v", w)
	}
	l.maintain()
	if n := strings.Count(l.log.String(), "cannot bind a health check port"); n != 1 || l.failures() != 2 {
		t.Errorf("logged %d times and counted %d times, want 1 and 2", n, l.failures())
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	l.maintain()
	if code, _, body := get(one, port); code != 200 {
		t.Errorf("after the port came free: %d %s", code, body)
	}
	if !l.follower.Due().IsZero() || len(l.follower.Faults()) != 0 {
		t.Error("it still waits")
	}
	l.must(l.apply([]string{one}))
	if !l.follower.Due().IsZero() {
		t.Error("a health check that is gone is tried again")
	}
}

func (l *lab) maintain() {
	l.t.Helper()
	time.Sleep(time.Until(l.follower.Due()))
	l.must(l.follower.Maintain(l.t.Context()))
}

func (l *lab) failures() int {
	registry := prometheus.NewRegistry()
	registry.MustRegister(l.follower)
	got, err := registry.Gather()
	l.must(err)
	return int(got[0].GetMetric()[0].GetCounter().GetValue())
}

func TestCloseFreesPortsDespiteHungClient(t *testing.T) {
	l := newLab(t)
	port := freePort(t)
	l.must(l.apply([]string{one}, &plan.HealthCheck{Namespace: "a", Name: "b", Port: port, LocalReady: 1}))
	conn, err := net.Dial("tcp", hostPort(one, port))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.WriteString(conn, "GET / HTT"); err != nil {
		t.Fatal(err)
	}
	l.must(l.follower.Close())
	again, err := net.Listen("tcp", hostPort(one, port))
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Close(); err != nil {
		t.Fatal(err)
	}
	// After five seconds, httpbound would also end the connection.
	if err := conn.SetReadDeadline(time.Now().Add(4 * closeTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("the client that hung was answered")
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("the client that hung was never cut")
	}
}

// The connection limit applies to all ports together. When the limit is reached, the servers still respond on new
// connections.
func TestConnectionsAreBounded(t *testing.T) {
	l := newLab(t)
	first, second := freePort(t), freePort(t)
	l.must(l.apply([]string{one},
		&plan.HealthCheck{Namespace: "a", Name: "b", Port: first, LocalReady: 1},
		&plan.HealthCheck{Namespace: "a", Name: "c", Port: second, LocalReady: 1}))
	var conns []net.Conn
	for i := range maxConns + 10 {
		conn, err := net.Dial("tcp", hostPort(one, []uint16{first, second}[i%2]))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n") // the idle timeout is the longest timeout
		conns = append(conns, conn)
	}
	for _, port := range []uint16{first, second} {
		if code, _, body := get(one, port); code != 200 {
			t.Errorf("%d %s", code, body)
		}
	}
	open := 0
	for _, c := range conns {
		_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			open++
		}
	}
	if open > maxConns {
		t.Errorf("%d connections are open", open)
	}
}
