package conformance

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// testLoopbackAffinity tests session affinity for connections to loopback, where Edgeway, not the kernel, chooses the
// endpoint.
func testLoopbackAffinity(t *testing.T, s *suite) {
	ses := s.startClean(t)
	const text = `
nodeports node-1 loopback
service web
  for TCP
  affinity 1h
  cluster %s
  NodePort 30080  all=cluster
`
	ses.syncText(t, fmt.Sprintf(text, "pod-a pod-b far-a"))
	before := s.loopbackChoices(t)
	fail(t, s.changedClients(before, s.loopbackChoices(t), "the second connection"))
	ses.syncText(t, fmt.Sprintf(text, "pod-a pod-b far-a far-b"))
	fail(t, s.changedClients(before, s.loopbackChoices(t), "an endpoint was added"))
	ses.syncText(t, fmt.Sprintf(text, "pod-b far-a far-b"))
	met := map[string]bool{}
	for c, now := range s.loopbackChoices(t) {
		had := before[c].server
		met[had] = true
		switch {
		case had != "pod-a" && now.server != had:
			t.Errorf("%s used endpoint %s, but endpoint %s after the removal of another endpoint", c, had, now.server)
		case now.server == "pod-a":
			t.Errorf("%s still uses the removed endpoint", c)
		}
	}
	if len(met) != 3 {
		t.Errorf("all clients together reached only the endpoints %v", sortedKeys(met))
	}
}

// loopbackChoices connects to NodePort 30080 from 64 IPv4 loopback addresses and from the IPv6 loopback address, and
// returns the server that each connection reached.
func (s *suite) loopbackChoices(t *testing.T) map[client]choice {
	t.Helper()
	sources := []netip.Addr{netip.IPv6Loopback()}
	for i := range byte(64) { // with 3 endpoints, 65 clients miss one with a probability of about 1e-11
		sources = append(sources, netip.AddrFrom4([4]byte{127, 0, 0, i + 1}))
	}
	met := map[client]choice{}
	for _, from := range sources {
		to := netip.AddrPortFrom(mustAddress("loopback", plan.FamilyOf(from)), 30080)
		outcome := s.world.Node.Connect(netlab.Flow{Protocol: plan.TCP, From: from, To: to, Wait: responseTimeout})
		if outcome.Result != netlab.Served {
			t.Fatalf("from %s to %s: %s", from, to, outcome)
		}
		met[client{hostName, from, plan.TCP}] = choice{server: outcome.Server}
	}
	return met
}

// rejectedMetric is the name of the metric that counts the rejected packets on loopback, by ip_family and protocol.
const rejectedMetric = "kubeproxy_nftables_localhost_nodeport_rejected_packets_total"

func testLoopbackCounters(t *testing.T, s *suite) {
	ses := s.startClean(t)
	p := ses.syncText(t, `
nodeports node-1 loopback
service web
  cluster pod-a
  NodePort 30080  all=cluster
`)
	before := rejected(t, ses.proxier.(stages)[0])
	want := 0
	if s.backend.CountsLoopback {
		want = 4 // UDP and SCTP in each family
	}
	if len(before) != want {
		t.Fatalf("counts %v, want %d", before, want)
	}
	for _, r := range rowsOf(p, p.Services) {
		if r.to.Addr().IsLoopback() {
			s.mustAgree(t, p, []row{r, r, r}, "counted")
		}
	}
	for kind, n := range rejected(t, ses.proxier.(stages)[0]) {
		if n-before[kind] != 3 {
			t.Errorf("%v: the backend counted %v packets, want 3", kind, n-before[kind])
		}
	}
}

func rejected(t *testing.T, p proxiers.Proxier) map[string]float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	if c, ok := p.(prometheus.Collector); ok {
		registry.MustRegister(c)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	counts := map[string]float64{}
	for _, f := range families {
		if f.GetName() != rejectedMetric {
			continue
		}
		for _, m := range f.GetMetric() {
			counts[fmt.Sprint(m.GetLabel())] = m.GetCounter().GetValue()
		}
	}
	return counts
}
