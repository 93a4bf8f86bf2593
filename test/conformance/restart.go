package conformance

import (
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

const (
	steadySpec = `
service steady
  cluster pod-a
  ClusterIP cluster-1:80  all=cluster+snat
service sticky
  affinity 1h
  cluster pod-b
  ClusterIP cluster-4:80  all=cluster
`
	changingSpec = `
service changing
  cluster pod-a pod-b far-a
  local   pod-a
  ClusterIP      cluster-2:80  all=cluster
  LoadBalancerIP lb-2:80       pod=cluster host=cluster+snat outside=local
  NodePort       30080         all=cluster+snat
`
	changedSpec = `
service changing
  cluster pod-b far-a far-b far-b:9090
  ClusterIP cluster-2:80  all=cluster
  ClusterIP cluster-3:80  all=reject
`
)

// testRestart verifies that connections to unchanged Services survive changes to other Services, full syncs, and
// restarts. After a restart, the new backend finds the state that a killed backend left behind.
func testRestart(t *testing.T, s *suite) {
	ses := s.startClean(t)
	p := ses.syncText(t, steadySpec+changingSpec)
	traffic := s.startTraffic(t, p)

	ses.syncText(t, steadySpec+changedSpec)
	p = ses.syncText(t, steadySpec+changingSpec)
	ses.apply(t, nil, p)
	traffic.mustHaveNoFailures(t, "changes to another Service and a full sync")

	// To simulate a killed daemon, the test does not close the old backend. The new backend starts with a plan that
	// differs from the kernel's state.
	next := s.start(t)
	next.plan = p
	sp, err := parseSpec(steadySpec + changedSpec)
	if err != nil {
		t.Fatal(err)
	}
	if p, err = sp.compile(s.world.lab(), p); err != nil {
		t.Fatal(err)
	}
	next.apply(t, nil, p)
	defer func() { _ = next.proxier.Close() }()
	s.mustAgree(t, p, rowsOf(p, p.Services), "after a restart with another plan")
	traffic.mustHaveNoFailures(t, "a restart with another plan")

	for range 5 {
		another := s.start(t)
		another.apply(t, nil, p)
		if err := another.proxier.Close(); err != nil {
			t.Error(err)
		}
	}
	traffic.mustHaveNoFailures(t, "five restarts")
	traffic.stop()

	// Established flows must survive the removal of their Service.
	next.syncText(t, "")
	for _, session := range traffic.sessions {
		if got := session.Ask(responseTimeout); got.Result != netlab.Served {
			t.Errorf("established flow of a removed Service: %s", got)
		}
	}
}

// traffic sends requests continuously over both established and new connections.
type traffic struct {
	sessions []*netlab.Session
	stop     func()
	made     atomic.Int64

	mu       sync.Mutex
	failures []string
}

// startTraffic starts traffic to the Services in steadySpec, and opens flows to the Service that the test changes.
func (s *suite) startTraffic(t *testing.T, p *plan.Plan) *traffic {
	tr := &traffic{}
	end := make(chan struct{})
	var wg sync.WaitGroup
	tr.stop = sync.OnceFunc(func() { close(end); wg.Wait() })
	t.Cleanup(func() {
		tr.stop()
		for _, session := range tr.sessions {
			session.Close()
		}
	})
	loop := func(try func() netlab.Outcome, what string) {
		for {
			select {
			case <-end:
				return
			case <-time.After(requestPause()):
			}
			tr.made.Add(1)
			if got := try(); got.Result != netlab.Served {
				tr.fail(what + ": " + got.String())
			}
		}
	}
	for _, family := range families {
		for _, proto := range []plan.Protocol{plan.TCP, plan.UDP} {
			for _, name := range []string{"cluster-1", "cluster-2", "cluster-4"} {
				r, err := newRow("client-a", netip.AddrPortFrom(mustAddress(name, family), 80), proto)
				if err != nil {
					t.Fatal(err)
				}
				f := netlab.Flow{Protocol: proto, From: r.from, To: r.to, Wait: responseTimeout}
				session, outcome := s.world.hosts[r.source].Open(f)
				if session == nil {
					t.Fatalf("%s: %s", r, outcome)
				}
				// For UDP, a single request adds the flow to the connection-tracking table.
				if got := session.Ask(responseTimeout); got.Result != netlab.Served {
					t.Fatalf("%s: %s", r, got)
				}
				tr.sessions = append(tr.sessions, session)
				wg.Go(func() {
					loop(func() netlab.Outcome { return session.Ask(responseTimeout) }, "established, "+r.String())
				})
				if name != "cluster-2" {
					wg.Go(func() {
						loop(func() netlab.Outcome { return s.world.hosts[r.source].Connect(f) }, "new, "+r.String())
					})
				}
			}
		}
	}
	s.mustBeInGroups(t, len(tr.sessions)/2) // half of the sessions use TCP
	return tr
}

// mustBeInGroups fails the test unless the sockets of each host belong to the host's own cgroup. The cgroup of client-a
// must contain at least the given number of sockets.
func (s *suite) mustBeInGroups(t *testing.T, least int) {
	t.Helper()
	for name, h := range s.world.hosts {
		if h.Cgroup() == "" {
			continue // the lab has already logged the reason
		}
		own, others, err := h.Sockets(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(others) > 0 || name == "client-a" && own < least {
			t.Errorf("%s has %d sockets in its own control group; sockets in other groups: %q", name, own, others)
		}
	}
}

func (tr *traffic) fail(line string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.failures = append(tr.failures, line)
}

// mustHaveNoFailures reports a test failure for each connection that has failed since the previous call.
func (tr *traffic) mustHaveNoFailures(t *testing.T, what string) {
	t.Helper()
	time.Sleep(100 * time.Millisecond) // let the traffic continue for a while after the event
	tr.mu.Lock()
	defer tr.mu.Unlock()
	made := tr.made.Swap(0)
	if made == 0 {
		t.Errorf("no traffic during %s", what)
	}
	for i, f := range tr.failures {
		if i == 10 {
			t.Errorf("… and %d more", len(tr.failures)-i)
			break
		}
		t.Errorf("during %s: %s", what, f)
	}
	t.Logf("%s: %s requests, %d failures", what, thousands(int(made)), len(tr.failures))
	tr.failures = nil
}
