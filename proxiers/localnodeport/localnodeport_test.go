package localnodeport

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

func TestBothFamilies(t *testing.T) {
	w := newWorld(t)
	serve(t, "127.0.1.1:8080")
	serve(t, "[::1]:8080")
	w.apply(service("four", 30000, "127.0.1.1:8080"), service("six", 30000, "[::1]:8080"))
	answers(t, "127.0.0.1:30000", "127.0.1.1:8080")
	answers(t, "[::1]:30000", "[::1]:8080")
	refuses(t, "127.0.0.1:30001")
	w.stats(1, 1)
	if s := w.Stats(); s.Accepted != 2 || s.ToClient == 0 || s.ToEndpoint == 0 {
		t.Errorf("after two connections: %+v", s)
	}
}

func TestListenersFollowPlan(t *testing.T) {
	w := newWorld(t)
	serve(t, "127.0.1.1:8080")
	serve(t, "127.0.1.2:8080")
	a, b := service("a", 30000, "127.0.1.1:8080"), service("b", 30001, "127.0.1.1:8080")
	udp := service("udp", 30002, "127.0.1.1:8080")
	udp.Name.Protocol = plan.UDP
	udp.Seal()
	expect := func(what, want string) {
		t.Helper()
		if got := w.sockets.calls(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	const nothing = "listen [], release []"

	w.apply(a, udp)
	expect("first", "listen [127.0.0.1:30000], release []")
	w.apply(a, b, udp)
	expect("a Service more", "listen [127.0.0.1:30001], release []")
	answers(t, "127.0.0.1:30001", "127.0.1.1:8080")
	w.apply(service("a", 30000, "127.0.1.2:8080"), b, udp)
	expect("another endpoint", nothing)
	answers(t, "127.0.0.1:30000", "127.0.1.2:8080")
	w.apply(service("a", 30000), b, udp)
	expect("no endpoint", "listen [], release [127.0.0.1:30000]")
	refuses(t, "127.0.0.1:30000")
	w.apply(a, b)
	expect("endpoint again", "listen [127.0.0.1:30000], release []")
	w.apply(service("a", 30005, "127.0.1.1:8080"), b)
	expect("another port", "listen [127.0.0.1:30005], release [127.0.0.1:30000]")
	w.apply(b, service("c", 30005, "127.0.1.2:8080"))
	expect("another Service at the port", nothing)
	answers(t, "127.0.0.1:30005", "127.0.1.2:8080")
	w.plan = nil
	w.apply(b, service("c", 30005, "127.0.1.2:8080"))
	expect("a full sync", nothing)
	w.stats(2, 0)
	w.applyTo(&plan.Plan{Node: &plan.Node{}}, b)
	w.stats(0, 0)
	refuses(t, "127.0.0.1:30001")
	w.sockets.calls()
	w.apply(b)
	expect("turned on again", "listen [127.0.0.1:30001], release []")
	answers(t, "127.0.0.1:30001", "127.0.1.1:8080")
}

// With externalTrafficPolicy Local, a Service without an endpoint on this host behaves like a Service without
// endpoints.
func TestLocalPolicyWithoutLocalEndpoint(t *testing.T) {
	w := newWorld(t)
	serve(t, "127.0.1.1:8080")
	drop, local := service("drop", 30000, "127.0.1.9:8080"), service("local", 30001, "127.0.1.9:8080")
	drop.Frontends[0].Routes[plan.FromOutside].Verdict = plan.Drop
	local.Frontends[0].Routes[plan.FromOutside].Pool = plan.LocalPool
	local.Pools[plan.LocalPool] = []plan.Endpoint{{Addr: addrPort("127.0.1.1:8080"), Local: true}}
	w.apply(drop, local)
	refuses(t, "127.0.0.1:30000")
	answers(t, "127.0.0.1:30001", "127.0.1.1:8080")
}

func TestConnectionsOutliveListener(t *testing.T) {
	w := newWorld(t)
	serve(t, "127.0.1.1:8080")
	w.apply(service("a", 30000, "127.0.1.1:8080"))
	conn, err := dial("127.0.0.1:30000")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	goesOn := func(when string) {
		t.Helper()
		if got, err := ask(conn); err != nil || got != "127.0.1.1:8080" {
			t.Errorf("%s: %q (%v)", when, got, err)
		}
	}
	goesOn("at first")
	w.apply(service("a", 30000))
	refuses(t, "127.0.0.1:30000")
	goesOn("without endpoints")
	w.apply()
	goesOn("without the Service")
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	goesOn("after Close")
}

// A connection counts once, however many endpoints the relay tries. A change to the endpoints does not reset the
// connection count.
func TestConnectionsAreCounted(t *testing.T) {
	w := newWorld(t)
	serve(t, "127.0.1.4:8080")
	counted := func() (n uint64) {
		t.Helper()
		err := w.Connections(w.plan, func(svc *plan.ServicePort, kind plan.FrontendKind, more uint64) {
			if n += more; svc.Name.Name != "a" || kind != plan.NodePort {
				t.Errorf("%d connections to %s of %s", more, kind, svc.Name)
			}
		})
		if err != nil {
			t.Error(err)
		}
		return n
	}
	w.apply(service("a", 30000, "127.0.1.1:8080", "127.0.1.4:8080"), service("b", 30001, "127.0.1.4:8080"))
	for range 10 {
		answers(t, "127.0.0.1:30000", "127.0.1.4:8080")
	}
	w.apply(service("a", 30000, "127.0.1.4:8080"), service("b", 30001, "127.0.1.4:8080"))
	answers(t, "127.0.0.1:30000", "127.0.1.4:8080")
	if n := counted(); n != 11 {
		t.Errorf("%d connections counted, want 11", n)
	}
}

func TestDeadEndpointsAreSkipped(t *testing.T) {
	w := newWorld(t)
	serve(t, "127.0.1.4:8080")
	w.apply(service("a", 30000, "127.0.1.1:8080", "127.0.1.2:8080", "127.0.1.3:8080", "127.0.1.4:8080"))
	for range 20 {
		answers(t, "127.0.0.1:30000", "127.0.1.4:8080")
	}
	if s := w.Stats(); s.DialFailures == 0 || s.Retries == 0 || s.NoEndpoint != 0 {
		t.Errorf("counts %+v", s)
	}
	w.apply(service("a", 30000, "127.0.1.1:8080"))
	if got, err := who("127.0.0.1:30000"); err == nil {
		t.Errorf("a Service of a dead endpoint is answered by %q", got)
	}
	if s := w.Stats(); s.NoEndpoint != 1 {
		t.Errorf("%d connections counted that no endpoint took, want 1", s.NoEndpoint)
	}
}

func TestAddressInUse(t *testing.T) {
	w := newWorld(t)
	serve(t, "127.0.1.1:8080")
	squatter, err := net.Listen("tcp", "127.0.0.1:30000")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(service("a", 30000, "127.0.1.1:8080"), service("b", 30001, "127.0.1.1:8080"),
		service("six", 30000, "[::1]:8080"))
	answers(t, "127.0.0.1:30001", "127.0.1.1:8080")
	w.stats(1, 1)
	w.maintain(1200 * time.Millisecond) // time for one more attempt
	// A busy machine may need longer.
	for end := time.Now().Add(30 * time.Second); w.Stats().ListenFailures[plan.IPv4] < 2 && time.Now().Before(end); {
		w.maintain(10 * time.Millisecond)
	}
	const complaint = "cannot listen on a loopback NodePort"
	if n := w.log.count(complaint); n != 1 || w.log.count("address=127.0.0.1:30000 service=default/a/TCP") != 1 {
		t.Errorf("logged %d times, want once with the address and the Service", n)
	}
	if got := w.Stats().ListenFailures; got[plan.IPv4] != 2 || got[plan.IPv6] != 0 {
		t.Errorf("failures %v, want 2 of IPv4", got)
	}
	if got := w.Faults(); len(got) != 1 || got[0].Object.Name != "default/a/TCP" ||
		got[0].String() != "default/a/TCP: Edgeway does not serve 127.0.0.1:30000: "+syscall.EADDRINUSE.Error() {
		t.Errorf("waiting: %v", got)
	}
	serve(t, "127.0.1.2:8080")
	w.apply(service("a", 30000, "127.0.1.2:8080"), service("b", 30001, "127.0.1.1:8080"))
	_ = squatter.Close()
	deadline := time.Now().Add(30 * time.Second)
	for ; w.Stats().Listeners[plan.IPv4] < 2; w.maintain(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the address is free and not listened on")
		}
	}
	answers(t, "127.0.0.1:30000", "127.0.1.2:8080")
	if len(w.Faults()) != 0 || w.log.count("NodePort is served on loopback") != 1 || w.log.count(complaint) != 1 {
		t.Error("it is not logged, once, that the NodePort is served now")
	}
}

// A NodePort disappears from the plan while another program is listening on the NodePort's address. When the other
// program exits, the Proxier must not start listening.
func TestRemovedNodePortIsNotOpenedLater(t *testing.T) {
	w := newWorld(t)
	squatter, err := net.Listen("tcp", "127.0.0.1:30000")
	if err != nil {
		t.Fatal(err)
	}
	w.apply(service("a", 30000, "127.0.1.1:8080"))
	w.apply()
	_ = squatter.Close()
	w.sockets.calls()
	w.maintain(1200 * time.Millisecond)
	if got := w.sockets.calls(); got != "listen [], release []" {
		t.Errorf("after the Service has gone: %s", got)
	}
	refuses(t, "127.0.0.1:30000")
}

func TestPassedSockets(t *testing.T) {
	w := newWorld(t)
	serve(t, "127.0.1.1:8080")
	wanted, unwanted := addrPort("127.0.0.1:30000"), addrPort("[::1]:30001")
	w.sockets.addInherited(t, wanted)
	w.sockets.addInherited(t, unwanted)
	conn, err := dial(wanted.String()) // the client connects before the Proxier accepts
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	w.apply(service("a", 30000, "127.0.1.1:8080"))
	if got, err := ask(conn); err != nil || got != "127.0.1.1:8080" {
		t.Errorf("a client that waited: %q (%v)", got, err)
	}
	if got := w.sockets.calls(); got != "listen [127.0.0.1:30000], release [[::1]:30001]" {
		t.Errorf("%s, want the socket of no NodePort released", got)
	}
}

func TestCloseKeepsSockets(t *testing.T) {
	w := newWorld(t)
	serve(t, "127.0.1.1:8080")
	w.apply(service("a", 30000, "127.0.1.1:8080"))
	answers(t, "127.0.0.1:30000", "127.0.1.1:8080")
	w.sockets.calls()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	w.stats(0, 0)
	conn, err := dial("127.0.0.1:30000")
	if err != nil {
		t.Fatalf("after Close: %v", err)
	}
	defer func() { _ = conn.Close() }()
	w.Proxier, w.plan = w.newProxier(), nil
	w.apply(service("a", 30000, "127.0.1.1:8080"))
	if got, err := ask(conn); err != nil || got != "127.0.1.1:8080" {
		t.Errorf("a client that waited: %q (%v)", got, err)
	}
	if got := w.sockets.calls(); got != "listen [127.0.0.1:30000], release []" {
		t.Errorf("%s", got)
	}
}

func TestShutdownWaitsForConnections(t *testing.T) {
	serve(t, "127.0.1.1:8080")
	for _, ends := range []bool{true, false} {
		w := newWorld(t)
		w.apply(service("a", 30000, "127.0.1.1:8080"))
		conn, err := dial("127.0.0.1:30000")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := ask(conn); err != nil {
			t.Fatal(err)
		}
		limit := 500 * time.Millisecond
		start := time.Now() // before the timer starts, so that took is never shorter than the timer's delay
		if ends {
			limit = 30 * time.Second
			time.AfterFunc(100*time.Millisecond, func() { _ = conn.Close() })
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		w.Shutdown(ctx)
		if took := time.Since(start); took < 100*time.Millisecond || ends == (ctx.Err() != nil) {
			t.Errorf("connections end: %v; it took %s", ends, took)
		}
		if !ends {
			if _, err := ask(conn); err == nil || errors.Is(err, io.EOF) {
				t.Errorf("a connection that was left ended with %v, want a reset", err)
			}
		}
		cancel()
		_ = conn.Close()
		w.sockets.Release(addrPort("127.0.0.1:30000"))
	}
}

func TestApplyEndsWithContext(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	next := &plan.Plan{
		Node:     &plan.Node{LoopbackAddrs: []netip.Addr{netip.IPv6Loopback()}},
		Services: []*plan.ServicePort{service("a", 30000, "[::1]:8080")},
	}
	if err := w.Apply(ctx, proxiers.NewChange(nil, next)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
}

func TestManyNodePorts(t *testing.T) {
	w := newWorld(t)
	serve(t, "127.0.1.1:8080")
	var services []*plan.ServicePort
	for i := range 2000 {
		services = append(services, service(fmt.Sprintf("s%04d", i), uint16(30000+i), "127.0.1.1:8080"))
	}
	start := time.Now()
	w.apply(services...)
	t.Logf("2000 NodePorts listen after %s", time.Since(start))
	for _, i := range []int{0, 999, 1999} {
		answers(t, fmt.Sprintf("127.0.0.1:%d", 30000+i), "127.0.1.1:8080")
	}
	w.stats(2000, 0)
	start = time.Now()
	w.apply(services[:1999]...)
	t.Logf("one is gone after %s", time.Since(start))
	w.stats(1999, 0)
}
