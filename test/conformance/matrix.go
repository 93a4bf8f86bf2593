package conformance

import (
	"fmt"
	"testing"

	"edgeway/proxiers/plan"
)

var routes = []plan.Route{
	{Pool: plan.ClusterPool},
	{Pool: plan.ClusterPool, SNAT: true},
	{Pool: plan.LocalPool},
	{Pool: plan.LocalPool, SNAT: true},
	{Verdict: plan.Reject},
	{Verdict: plan.Drop},
}

// tripleFunc returns a triple: a frontend's routes for the three origins. The argument n differs for each Service and
// for each kind of frontend, so the frontends of a Service have different triples.
type tripleFunc func(n int) [3]plan.Route

// latinTriple returns one of six triples of routes. The triples form a Latin square: each origin occurs with each
// route.
func latinTriple(n int) [3]plan.Route {
	return [3]plan.Route{routes[n%6], routes[(n+1)%6], routes[(n+3)%6]}
}

// pairwiseTriple returns one of 36 triples of routes. For any two origins, these 36 triples contain every pair of
// routes, as the full set of 216 triples does.
func pairwiseTriple(n int) [3]plan.Route {
	p, h := n%6, n/6%6
	return [3]plan.Route{routes[p], routes[h], routes[(p+h)%6]}
}

// matrixSpec returns a spec with the given number of Services. Each Service has every kind of frontend, and all
// Services together combine every kind of frontend with every triple of routes. Each Service also has a load-balancer
// frontend with source ranges.
func matrixSpec(services int, triple tripleFunc) *spec {
	s := &spec{nodePorts: []string{"node-1", "node-2", "loopback"}, cidrs: defaultServiceCIDRs}
	for n := range services {
		svc := &service{
			name: fmt.Sprintf("matrix-%02d", n), protocols: protocols, families: families,
			pools: [2][]string{{"pod-a", "pod-b", "far-a", "far-b"}, {"pod-a", "pod-b:9090"}},
		}
		for kind, addr := range map[plan.FrontendKind]string{
			plan.ClusterIP: "cluster", plan.ExternalIP: "external",
			plan.LoadBalancerIP: "lb",
		} {
			f := frontend{kind: kind, addr: fmt.Sprintf("%s-%d", addr, n+1), port: 80, routes: triple(n + 7*int(kind))}
			svc.frontends = append(svc.frontends, f)
			if kind == plan.LoadBalancerIP {
				f.port, f.from = 81, []string{"client-a", "node-1", "pod-a"}
				svc.frontends = append(svc.frontends, f)
			}
		}
		svc.frontends = append(svc.frontends, frontend{
			kind: plan.NodePort, port: uint16(30100 + n),
			routes: triple(n + 21),
		})
		s.services = append(s.services, svc)
	}
	return s
}

// testMatrix compares connections with the plan for every combination of origin, kind of frontend, route, protocol and
// family. On a slow machine, running only the subtest "every route" is enough to show that the kernel implements the
// rules.
func testMatrix(t *testing.T, s *suite) {
	for _, m := range []struct {
		name     string
		services int
		triple   tripleFunc
	}{{"every route", 6, latinTriple}, {"every pair of routes", 36, pairwiseTriple}} {
		t.Run(m.name, func(t *testing.T) {
			ses := s.startClean(t)
			p := ses.sync(t, matrixSpec(m.services, m.triple))
			rows := rowsOf(p, p.Services)
			s.mustAgree(t, p, rows, "matrix")
			t.Logf("%s cells", thousands(len(rows)))
		})
	}
}
