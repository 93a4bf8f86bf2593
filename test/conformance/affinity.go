package conformance

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// shortAffinity is a session affinity timeout that exceeds the pauses between a client's connections on a busy machine.
const shortAffinity = 3 * time.Second

// testAffinity tests session affinity (SEMANTICS row 30) with many concurrent clients, over every protocol and address
// family.
func testAffinity(t *testing.T, s *suite) {
	t.Run("a client keeps its endpoint at every frontend", func(t *testing.T) { testStickiness(t, s) })
	t.Run("removing an endpoint moves only its clients", func(t *testing.T) { testRemovedChoice(t, s) })
	t.Run("affinity expires, and each connection extends it", func(t *testing.T) { testExpiry(t, s) })
	t.Run("on loopback, each source address is a client", func(t *testing.T) { testLoopbackAffinity(t, s) })
	t.Run("affinity survives a restart and a full sync", func(t *testing.T) { testAffinitySurvives(t, s) })
}

const stickySpec = `
service web
  affinity 1h
  cluster pod-a pod-b far-a
  local   pod-a pod-b
  ClusterIP      cluster-1:80   pod=cluster host=cluster outside=cluster+snat
  ExternalIP     external-1:80  pod=cluster host=cluster outside=cluster+snat
  LoadBalancerIP lb-1:80        pod=cluster host=cluster outside=cluster
  NodePort       30080          pod=cluster host=cluster outside=cluster
service other
  affinity 30m
  cluster pod-a pod-b far-a
  local   pod-b:9090
  ClusterIP  cluster-2:80   all=cluster
  ExternalIP external-2:80  all=local
`

func testStickiness(t *testing.T, s *suite) {
	ses := s.startClean(t)
	p := ses.syncText(t, stickySpec)
	fail(t, s.sticky(p))
}

func (s *suite) sticky(p *plan.Plan) (problems []string) {
	first := s.choices(p, "cluster-1:80")
	for _, at := range []string{
		"cluster-1:80", "cluster-1:80", "external-1:80", "lb-1:80", "node-1:30080",
		"node-2:30080", "cluster-1:80",
	} {
		problems = append(problems, s.changedClients(first, s.choices(p, at), "the second connection, to "+at)...)
	}
	for c, met := range s.choices(p, "external-2:80") {
		if met.server != "pod-b:9090" {
			problems = append(problems, fmt.Sprintf("%s reached %s instead of an endpoint in the local pool", c,
				met.server))
		}
	}
	// The backend chooses a client's endpoint independently for each Service, so some clients must use different
	// endpoints for the two Services.
	other, differ, met := s.choices(p, "cluster-2:80"), 0, map[string]bool{}
	for c, now := range other {
		if now.server != "pod-b:9090" && now.server != first[c].server {
			differ++
		}
		met[first[c].server] = true
	}
	if differ == 0 {
		problems = append(problems, "every client uses the same endpoint for both Services")
	}
	if len(met) != 3 {
		problems = append(problems, fmt.Sprintf("all clients together reached only the endpoints %v", sortedKeys(met)))
	}
	return problems
}

func testRemovedChoice(t *testing.T, s *suite) {
	ses := s.startClean(t)
	const text = `
service web
  affinity 1h
  cluster %s
  ClusterIP cluster-1:80  all=cluster
  NodePort  30080         all=cluster
`
	p := ses.syncText(t, fmt.Sprintf(text, "pod-a pod-b far-a far-b"))
	before := s.choices(p, "cluster-1:80")
	p = ses.syncText(t, fmt.Sprintf(text, "pod-a far-a far-b"))
	stay := maps.Clone(before)
	maps.DeleteFunc(stay, func(_ client, met choice) bool { return met.server == "pod-b" })
	if len(stay) == len(before) {
		t.Error("no client used the removed endpoint")
	}
	after := s.choices(p, "node-1:30080")
	fail(t, s.changedClients(stay, after, "another endpoint was removed"))
	for c, met := range after {
		if met.server == "pod-b" {
			t.Errorf("%s still uses the removed endpoint", c)
		}
	}
	// When the test adds the removed endpoint again, together with a new endpoint, every client must keep its endpoint.
	p = ses.syncText(t, fmt.Sprintf(text, "pod-a pod-b pod-b:9090 far-a far-b"))
	fail(t, s.changedClients(after, s.choices(p, "cluster-1:80"), "endpoints were added"))
}

func testExpiry(t *testing.T, s *suite) {
	affinity := paced(shortAffinity)
	for range 4 {
		if s.tryExpiry(t, affinity) {
			return
		}
		affinity *= 2
		t.Logf("this machine is too busy, retrying with an affinity timeout of %s", affinity)
	}
	t.Error("this machine is too busy to measure the affinity timeout")
}

// tryExpiry tests the expiry of session affinity, and returns false if the pauses between a client's connections were
// too long for a conclusive result.
func (s *suite) tryExpiry(t *testing.T, affinity time.Duration) bool {
	ses := s.startClean(t)
	p := ses.syncText(t, fmt.Sprintf(`
service used
  affinity %[1]s
  cluster pod-a pod-b far-a
  ClusterIP cluster-1:80  all=cluster
service unused
  affinity %[1]s
  cluster pod-a pod-b far-a
  ClusterIP cluster-2:80  all=cluster
`, affinity))
	unused := s.choices(p, "cluster-2:80")
	start := time.Now()
	last, used := start, s.choices(p, "cluster-1:80")
	for time.Since(start) < 2*affinity {
		time.Sleep(affinity / 6)
		now := time.Now()
		again := s.choices(p, "cluster-1:80")
		if time.Since(last) > affinity {
			return false
		}
		last = now
		fail(t, s.changedClients(used, again, "it was used all the time"))
	}
	if again := s.choices(p, "cluster-2:80"); maps.Equal(unused, again) {
		t.Errorf("after %s without a connection, all %d clients still use the same endpoints", 2*affinity, len(again))
	}
	return true
}

func testAffinitySurvives(t *testing.T, s *suite) {
	ses := s.startClean(t)
	p := ses.syncText(t, stickySpec)
	before := s.choices(p, "cluster-1:80")
	ses.apply(t, nil, p)
	fail(t, s.changedClients(before, s.choices(p, "cluster-1:80"), "a full sync"))
	second := s.start(t)
	second.apply(t, nil, p)
	defer func() { _ = second.proxier.Close() }()
	fail(t, s.changedClients(before, s.choices(p, "lb-1:80"), "a restart"))
}

type client struct {
	source   string
	from     netip.Addr
	protocol plan.Protocol
}

func (c client) String() string { return fmt.Sprintf("client %s over %s", c.from, c.protocol) }

type choice struct {
	server   string
	svc      *plan.ServicePort
	frontend *plan.Frontend
}

// choices connects every client to a destination over all protocols and families, and returns the server that each
// client reached. The destination is in scenario notation, such as "cluster-1:80".
func (s *suite) choices(p *plan.Plan, destination string) map[client]choice {
	f := flow{protocols: protocols, families: families}
	if err := f.parse([]string{"pod-c", "->", destination, "pass"}); err != nil {
		panic(err) // a wrong destination is a mistake in the suite
	}
	met := map[client]choice{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, maxBusyRows)
	for _, source := range []string{"pod-c", "client-a"} {
		f.source = source
		rows, err := f.rows()
		if err != nil {
			panic(err)
		}
		for _, r := range rows {
			for _, from := range crowd(source, plan.FamilyOf(r.to.Addr())) {
				r := r
				r.from = from
				wg.Go(func() {
					slots <- struct{}{}
					defer func() { <-slots }()
					outcome := s.world.hosts[source].Connect(r.flow(responseTimeout))
					d := p.Decide(r.packet())
					s.report.count(r, d, 1)
					server := outcome.Server
					if outcome.Result != netlab.Served {
						server = outcome.String()
					}
					mu.Lock()
					defer mu.Unlock()
					met[client{source, from, r.protocol}] = choice{server, d.Service, d.Frontend}
				})
			}
		}
	}
	wg.Wait()
	return met
}

// changedClients returns a line for each client whose endpoint has changed, unless a declared deviation allows the
// change.
func (s *suite) changedClients(before, after map[client]choice, why string) (problems []string) {
	for c, had := range before {
		has := after[c]
		if has.server == had.server {
			continue
		}
		i := slices.IndexFunc(s.backend.AffinityDeviations, func(d AffinityDeviation) bool {
			return has.svc != nil && d.MayChangeEndpoint(has.svc, had.frontend, has.frontend)
		})
		if i >= 0 {
			s.report.countDeviation(s.backend.AffinityDeviations[i].Name)
			continue
		}
		problems = append(problems, fmt.Sprintf("%s used endpoint %s before and endpoint %s after (%s)",
			c, had.server, has.server, why))
	}
	return problems
}
