package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"edgeway/proxiers/plan"
)

var (
	allEndpoints = []string{
		"pod-a", "pod-b", "far-a", "far-b", "pod-a:9090", "pod-b:9090", "far-a:9090",
		"far-b:9090",
	}
	localEndpoints = []string{"pod-a", "pod-b", "pod-a:9090", "pod-b:9090"}
)

// changer changes a plan in small random steps. Two changers with the same seed produce the same plans.
type changer struct {
	*rand.Rand
	spec *spec
	// numbers lists the numbers that a new Service may have. Each Service has its own number, which determines the
	// Service's addresses and NodePorts.
	numbers []int
	// small limits each Service to a few endpoints, and most Services to one protocol.
	small bool
	done  []string
}

func newChanger(seed uint64) *changer {
	c := &changer{
		Rand: rand.New(rand.NewPCG(seed, 0)),
		spec: &spec{nodePorts: []string{"node-1", "node-2"}, cidrs: defaultServiceCIDRs},
	}
	for n := range 40 {
		c.numbers = append(c.numbers, n+1)
	}
	c.addSome(5)
	return c
}

func (c *changer) step() {
	for again := true; again; again = c.IntN(4) == 0 {
		kinds := serviceChanges
		if c.IntN(6) == 0 {
			kinds = nodeChanges
		}
		c.change(kinds[c.IntN(len(kinds))])
	}
}

// change makes a change of kind k. If there are fewer than three Services, change adds a Service instead.
func (c *changer) change(k kind) {
	if len(c.spec.services) < 3 {
		k = appearance
	}
	k.change(c)
	c.done = append(c.done, k.name)
	for _, svc := range c.spec.services {
		c.repair(svc)
	}
}

// addService adds a Service. The new Service may have the addresses of a deleted Service, but not the addresses of an
// existing Service.
func (c *changer) addService() {
	isFree := func(n int) bool {
		return !slices.ContainsFunc(c.spec.services, func(s *service) bool { return s.number == n })
	}
	if n, ok := c.chooseNumber(isFree); ok {
		c.spec.services = append(c.spec.services, c.newService(n))
	}
}

func (c *changer) chooseNumber(isFree func(int) bool) (n int, ok bool) {
	first := c.IntN(len(c.numbers))
	for i := range c.numbers {
		if n = c.numbers[(first+i)%len(c.numbers)]; isFree(n) {
			return n, true
		}
	}
	return 0, false
}

func (c *changer) addSome(n int) {
	for range n {
		c.addService()
	}
}

func (c *changer) newService(n int) *service {
	svc := &service{name: c.newName(), number: n}
	c.chooseProtocols(svc)
	svc.affinity = c.chooseAffinity()
	for _, k := range []plan.FrontendKind{plan.ClusterIP, plan.ExternalIP, plan.LoadBalancerIP, plan.NodePort} {
		if k == plan.ClusterIP || c.IntN(2) == 0 {
			svc.frontends = append(svc.frontends, c.newFrontend(svc, k, 80))
		}
	}
	c.choosePools(svc)
	c.chooseRoutes(svc)
	return svc
}

// newName returns a name that no existing Service has, but that a deleted Service may have had.
func (c *changer) newName() (name string) {
	c.chooseNumber(func(n int) bool {
		name = fmt.Sprintf("random-%03d", n)
		if n%5 == 0 {
			name += ":http"
		}
		return !slices.ContainsFunc(c.spec.services, func(s *service) bool { return s.name == name })
	})
	return name
}

func (c *changer) newFrontend(svc *service, k plan.FrontendKind, port uint16) frontend {
	f := frontend{kind: k, port: port}
	switch k {
	case plan.ClusterIP:
		f.addr = fmt.Sprintf("cluster-%d", svc.number)
	case plan.ExternalIP:
		f.addr = fmt.Sprintf("external-%d", svc.number)
	case plan.LoadBalancerIP:
		f.addr, f.from = fmt.Sprintf("lb-%d", svc.number), c.chooseSources()
	case plan.NodePort:
		f.port = 30208 + 16*uint16(svc.number) + port%16
	}
	for o := range f.routes {
		f.routes[o] = c.chooseRoute(svc)
	}
	return f
}

func (c *changer) chooseSources() []string {
	return [][]string{
		nil,
		{"client-a", "pod-a", "node-1"},
		{"client-b"},
		{"203.0.113.0/25", "2001:db8:113::/64"},
		{},
	}[c.IntN(5)]
}

func (c *changer) chooseProtocols(svc *service) {
	svc.protocols, svc.families = protocols, families
	switch {
	case c.small && c.IntN(6) > 0:
		svc.protocols = protocols[c.IntN(3):][:1]
	case c.IntN(3) == 0:
		svc.protocols = protocols[c.IntN(3):]
	}
	if c.IntN(6) == 0 {
		svc.families = families[c.IntN(2):][:1]
	}
}

func (c *changer) chooseAffinity() time.Duration {
	return []time.Duration{0, 0, time.Hour, 20 * time.Minute}[c.IntN(4)]
}

// choosePools assigns at least one endpoint to each pool, because a route may use either pool.
func (c *changer) choosePools(svc *service) {
	for pool, from := range [][]string{allEndpoints, localEndpoints} {
		svc.pools[pool] = nil
		most := len(from)
		if c.small {
			most = 3 - pool
		}
		for _, i := range c.Perm(len(from))[:1+c.IntN(most)] {
			svc.pools[pool] = append(svc.pools[pool], from[i])
		}
	}
	svc.leaving = nil
}

func (c *changer) chooseRoutes(svc *service) {
	for i := range svc.frontends {
		for o := range svc.frontends[i].routes {
			svc.frontends[i].routes[o] = c.chooseRoute(svc)
		}
	}
}

// chooseRoute returns a random route that does not lead to an empty pool.
func (c *changer) chooseRoute(svc *service) plan.Route {
	r := routes[c.IntN(len(routes))]
	if r.Verdict == plan.Forward && len(svc.pools[r.Pool]) == 0 {
		r = plan.Route{Verdict: plan.Reject + plan.Verdict(c.IntN(2))}
	}
	return r
}

func (c *changer) repair(svc *service) {
	for i := range svc.frontends {
		for o, r := range svc.frontends[i].routes {
			if r.Verdict == plan.Forward && len(svc.pools[r.Pool]) == 0 {
				svc.frontends[i].routes[o] = c.chooseRoute(svc)
			}
		}
	}
}

func (c *changer) sample(rows []row, n int) []row {
	c.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	return rows[:min(n, len(rows))]
}
