package conformance

import (
	"fmt"
	"testing"

	"edgeway/proxiers/plan"
)

// routes are the six things that can happen to a connection.
var routes = []plan.Route{
	{Pool: plan.ClusterPool},
	{Pool: plan.ClusterPool, SNAT: true},
	{Pool: plan.LocalPool},
	{Pool: plan.LocalPool, SNAT: true},
	{Verdict: plan.Reject},
	{Verdict: plan.Drop},
}

// matrixSpec has a Service for every pair of routes: any two origins meet every pair of routes in some
// frontend (36 triples do what all 216 would). Each Service has every kind of frontend, with the
// triples dealt out so that each kind meets each of them; and the same once more under source ranges.
func matrixSpec() *spec {
	s := &spec{nodePorts: []string{"node-1", "node-2", "loopback"}, cidrs: defaultServiceCIDRs}
	triple := func(n int) [3]plan.Route {
		p, h := n%6, n/6%6
		return [3]plan.Route{routes[p], routes[h], routes[(p+h)%6]}
	}
	for n := range 36 {
		svc := &service{
			name: fmt.Sprintf("matrix-%02d", n), protocols: protocols, families: families,
			pools: [2][]string{{"pod-a", "pod-b", "far-a", "far-b"}, {"pod-a", "pod-b:9090"}},
		}
		for kind, addr := range map[plan.FrontendKind]string{plan.ClusterIP: "cluster", plan.ExternalIP: "external", plan.LoadBalancerIP: "lb"} {
			f := frontend{kind: kind, addr: fmt.Sprintf("%s-%d", addr, n+1), port: 80, routes: triple(n + 7*int(kind))}
			svc.frontends = append(svc.frontends, f)
			if kind == plan.LoadBalancerIP {
				f.port, f.from = 81, []string{"client-a", "node-1", "pod-a"}
				svc.frontends = append(svc.frontends, f)
			}
		}
		svc.frontends = append(svc.frontends, frontend{kind: plan.NodePort, port: uint16(30100 + n), routes: triple(n + 21)})
		s.services = append(s.services, svc)
	}
	return s
}

// testMatrix compares every origin with every kind of frontend, route, protocol and family.
func testMatrix(t *testing.T, s *suite) {
	ses := s.fresh(t)
	p := ses.sync(t, matrixSpec())
	rows := rowsOf(p, p.Services)
	s.mustAgree(t, p, rows, "matrix")
	t.Logf("%s cells", thousands(len(rows)))
}
