package conformance

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"edgeway/proxiers/plan"
)

// allEndpoints are the endpoints that random Services choose from.
var allEndpoints = []string{"pod-a", "pod-b", "far-a", "far-b", "pod-a:9090", "pod-b:9090", "far-a:9090", "far-b:9090"}

// changer makes random plans, one small step after the other. The same seed makes the same plans.
type changer struct {
	*rand.Rand
	spec *spec
	made int
}

func newChanger(seed uint64) *changer {
	c := &changer{
		Rand: rand.New(rand.NewPCG(seed, 0)),
		spec: &spec{nodePorts: []string{"node-1", "node-2"}, cidrs: defaultServiceCIDRs},
	}
	for range 5 {
		c.add()
	}
	return c
}

// step changes one thing, now and then several.
func (c *changer) step() {
	for again := true; again; again = c.IntN(4) == 0 {
		if len(c.spec.services) < 3 {
			c.add()
			continue
		}
		i := c.IntN(len(c.spec.services))
		svc := c.spec.services[i]
		switch c.IntN(10) {
		case 0, 1:
			c.add()
		case 2, 3:
			c.spec.services = slices.Delete(c.spec.services, i, i+1)
		case 4, 5, 6:
			c.choosePools(svc)
		case 7:
			c.chooseRoutes(svc)
		case 8:
			svc.affinity = c.chooseAffinity()
		case 9:
			c.changeNode()
		}
	}
}

func (c *changer) changeNode() {
	c.spec.pods = podsBy(c.IntN(3))
	c.spec.nodePorts = [][]string{{"node-1", "node-2"}, {"node-1"}, {"node-2", "loopback"}, {"loopback"}, {}}[c.IntN(5)]
	c.spec.cidrs = defaultServiceCIDRs[:1+c.IntN(2)]
}

// add makes a Service with addresses of its own, some of which an earlier one, now gone, may have had.
func (c *changer) add() {
	c.made++
	n := c.made%40 + 1
	if slices.ContainsFunc(c.spec.services, func(s *service) bool { return s.frontends[0].addr == fmt.Sprintf("cluster-%d", n) }) {
		return
	}
	svc := &service{name: fmt.Sprintf("random-%03d", c.made), protocols: protocols, families: families, affinity: c.chooseAffinity()}
	if c.IntN(3) == 0 {
		svc.protocols = protocols[c.IntN(3):]
	}
	svc.frontends = []frontend{{kind: plan.ClusterIP, addr: fmt.Sprintf("cluster-%d", n), port: 80}}
	if c.IntN(2) == 0 {
		svc.frontends = append(svc.frontends, frontend{kind: plan.ExternalIP, addr: fmt.Sprintf("external-%d", n), port: 80})
	}
	if c.IntN(2) == 0 {
		f := frontend{kind: plan.LoadBalancerIP, addr: fmt.Sprintf("lb-%d", n), port: 80}
		f.from = [][]string{nil, {"client-a", "pod-a", "node-1"}, {"client-b"}, {}}[c.IntN(4)]
		svc.frontends = append(svc.frontends, f)
	}
	if c.IntN(2) == 0 {
		svc.frontends = append(svc.frontends, frontend{kind: plan.NodePort, port: uint16(30100 + n)})
	}
	c.choosePools(svc)
	c.chooseRoutes(svc)
	c.spec.services = append(c.spec.services, svc)
}

func (c *changer) chooseAffinity() time.Duration {
	return []time.Duration{0, 0, time.Hour, 20 * time.Minute}[c.IntN(4)]
}

// choosePools gives both pools at least one endpoint, as any route may use either.
func (c *changer) choosePools(svc *service) {
	for pool := range svc.pools {
		from := allEndpoints
		if pool == int(plan.LocalPool) {
			from = []string{"pod-a", "pod-b", "pod-a:9090", "pod-b:9090"}
		}
		svc.pools[pool] = nil
		for _, i := range c.Perm(len(from))[:1+c.IntN(len(from))] {
			svc.pools[pool] = append(svc.pools[pool], from[i])
		}
	}
}

func (c *changer) chooseRoutes(svc *service) {
	for i := range svc.frontends {
		for o := range svc.frontends[i].routes {
			svc.frontends[i].routes[o] = routes[c.IntN(len(routes))]
		}
	}
}

// sample takes n of the rows.
func (c *changer) sample(rows []row, n int) []row {
	c.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
	return rows[:min(n, len(rows))]
}
