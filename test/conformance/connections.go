package conformance

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

const (
	connectionsVariable = "CONFORMANCE_CONNECTIONS"
	connectionsUsually  = 500
)

// countedSpec is a format string for a spec. The arguments are the endpoints in the two pools of the Service "web", and
// the endpoints of the Service "sticky".
const countedSpec = `
service web
  cluster %s
  local   %s
  ClusterIP      cluster-1:80   pod=cluster host=cluster outside=cluster+snat
  ExternalIP     external-1:80  pod=cluster host=cluster outside=cluster+snat
  LoadBalancerIP lb-1:80        pod=cluster host=cluster outside=local
  NodePort       30080          pod=cluster host=cluster outside=cluster+snat
service sticky
  affinity 1h
  cluster %s
  ClusterIP      cluster-2:80   all=cluster
`

// testConnections tests a backend that counts connections. The backend must count each new connection once. The counts
// must survive endpoint changes, a full sync and a restart.
func testConnections(t *testing.T, s *suite) {
	create := s.backend.New
	t.Cleanup(func() { s.backend.New = create })
	count := true
	s.backend.New = func(ctx context.Context, env proxiers.Env) (proxiers.Proxier, error) {
		env.CountConnections = count
		return create(ctx, env)
	}
	ses := s.startClean(t)
	if _, ok := ses.counter(); !ok {
		if s.backend.Traits.CountsConnections {
			t.Error("the backend counts no connections")
		}
		return
	}
	c := &connectionCount{
		suite: s, remaining: connections(t),
		want: map[proxiers.Frontends]uint64{}, repeats: map[proxiers.Frontends]uint64{},
	}
	p := ses.syncText(t, fmt.Sprintf(countedSpec, "pod-a pod-b far-a", "pod-a pod-b", "pod-a pod-b"))
	c.connect(t, p, 3)
	c.mustEqual(t, ses, "after a first sync")

	p = ses.syncText(t, fmt.Sprintf(countedSpec, "pod-b far-b", "pod-b", "pod-a pod-b far-a"))
	c.connect(t, p, 2)
	c.mustEqual(t, ses, "after an endpoint change")

	ses.apply(t, nil, p)
	c.mustEqual(t, ses, "after a full sync")

	restarted := s.start(t)
	restarted.apply(t, nil, p)
	c.connect(t, p, 1)
	c.mustEqual(t, restarted, "after a restart")
	if err := restarted.proxier.Close(); err != nil {
		t.Error(err)
	}

	// After the backend stops counting, the kernel's state must be the same as on a host that has never counted
	// connections.
	count = false
	off := s.start(t)
	off.apply(t, nil, p)
	have := off.dump(t)
	if err := off.proxier.Close(); err != nil {
		t.Error(err)
	}
	fresh := s.startClean(t)
	fresh.apply(t, nil, p)
	if want := fresh.dump(t); have != want {
		t.Errorf("after the backend stopped counting, the kernel holds\n%s\ninstead of\n%s", have, want)
	}
}

func connections(t *testing.T) int {
	text, set := os.LookupEnv(connectionsVariable)
	if !set {
		return connectionsUsually
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("%s=%s: the value must be an integer of at least 1", connectionsVariable, text)
	}
	return n
}

func (ses *session) counter() (proxiers.Counter, bool) {
	c, ok := ses.proxier.(stages)[0].(proxiers.Counter)
	return c, ok
}

type connectionCount struct {
	*suite
	mu   sync.Mutex
	want map[proxiers.Frontends]uint64
	// repeats is the number of requests that the clients repeated. A backend may count a repeated request as another
	// connection, because the host may have counted the first request and then dropped it.
	repeats map[proxiers.Frontends]uint64
	// remaining is the number of connections that the test has yet to open.
	remaining int
}

// connect opens 1/share of the remaining connections.
func (c *connectionCount) connect(t *testing.T, p *plan.Plan, share int) {
	t.Helper()
	// The relay, not the backend, counts connections to loopback addresses.
	rows := slices.DeleteFunc(rowsOf(p, p.Services), func(r row) bool { return r.to.Addr().IsLoopback() })
	rows = slices.DeleteFunc(rows, func(r row) bool { return p.Decide(r.packet()).Verdict != plan.Forward })
	for n := c.remaining / share; n > 0; {
		// The kernel treats a packet that has the addresses and ports of a tracked UDP flow as part of that flow.
		if err := c.world.Node.FlushConntrack(); err != nil {
			t.Fatalf("conntrack: %v", err)
		}
		rows := rows[:min(n, len(rows))]
		c.connectOnce(t, p, rows)
		n, c.remaining = n-len(rows), c.remaining-len(rows)
	}
}

// connectOnce opens one connection for each row.
func (c *connectionCount) connectOnce(t *testing.T, p *plan.Plan, rows []row) {
	t.Helper()
	slots, wg := make(chan struct{}, maxBusyRows), sync.WaitGroup{}
	for _, r := range rows {
		d := p.Decide(r.packet())
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			got := c.world.hosts[r.source].Connect(r.flow(responseTimeout))
			if got.Result != netlab.Served {
				t.Errorf("%s: %s", r, got)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			f := proxiers.Frontends{Name: d.Service.Name, Kind: d.Frontend.Kind}
			c.want[f]++
			c.repeats[f] += uint64(got.Repeats)
		})
	}
	wg.Wait()
}

func (c *connectionCount) mustEqual(t *testing.T, ses *session, when string) {
	t.Helper()
	counter, _ := ses.counter()
	have := map[proxiers.Frontends]uint64{}
	err := counter.Connections(ses.plan, func(svc *plan.ServicePort, kind plan.FrontendKind, n uint64) {
		have[proxiers.Frontends{Name: svc.Name, Kind: kind}] += n
	})
	if err != nil {
		t.Fatal(err)
	}
	for f, want := range c.want {
		if n := have[f]; n < want || n > want+c.repeats[f] {
			t.Errorf("%s: %d connections to the %s of %s, want %d, or up to %d more because of repeated requests",
				when, n, f.Kind, f.Name, want, c.repeats[f])
		}
		delete(have, f)
	}
	if len(have) > 0 {
		t.Errorf("%s: the backend counted connections that the test did not open: %v", when, have)
	}
	t.Logf("%s: %v", when, c.want)
}
