package conformance

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"edgeway/proxiers/plan"
)

type kind struct {
	name   string
	change func(*changer)
}

var appearance = kind{"a Service appears", (*changer).addService}

// serviceChanges lists changes to the Services of a plan. No change in this list affects the lab, so the suite can test
// connections after each change.
var serviceChanges = []kind{
	appearance,
	{"a Service goes", (*changer).remove},
	{"a new Service replaces a removed Service of the same name", (*changer).replace},
	{"all endpoints are others", ofOne((*changer).choosePools)},
	{"an endpoint comes", ofOne((*changer).addEndpoint)},
	{"an endpoint goes", ofOne((*changer).removeEndpoint)},
	{"an endpoint terminates", ofOne((*changer).terminateEndpoint)},
	{"no endpoint is left", ofOne((*changer).removeEndpoints)},
	{"traffic policies change", ofOne((*changer).chooseRoutes)},
	{"session affinity changes", ofOne(func(c *changer, svc *service) { svc.affinity = c.chooseAffinity() })},
	{"a frontend appears", ofOne((*changer).addFrontend)},
	{"a frontend goes", ofOne((*changer).removeFrontend)},
	{"source ranges change", ofOne((*changer).changeSources)},
	{"protocols and families change", ofOne((*changer).chooseProtocols)},
}

// nodeChanges lists changes to the node of a plan. No change in this list affects the lab, so the suite can test
// connections after each change.
var nodeChanges = []kind{
	{"NodePort addresses change", (*changer).changeNodePorts},
	{"Service CIDRs change", (*changer).changeServiceCIDRs},
	{"pod identification changes", func(c *changer) { c.spec.pods = podsBy(c.IntN(3)) }},
}

// stateOnlyChanges lists the changes to a plan's Services after which the suite compares only the kernel's state.
var stateOnlyChanges = []kind{
	{"two Services swap addresses", (*changer).swap},
	{"many Services appear", func(c *changer) { c.addSome(10 + c.IntN(30)) }},
	{"many Services go", (*changer).removeMany},
	{"many frontends appear", ofSome((*changer).addFrontends)},
	{"all frontends but one go", ofSome(func(_ *changer, svc *service) { svc.frontends = svc.frontends[:1] })},
	{"many endpoints go", ofSome((*changer).removeEndpoints)},
	{"many Services' endpoints change", ofSome((*changer).choosePools)},
	{"health checks change", (*changer).changeHealthChecks},
}

// stateOnlyNodeChanges lists the changes to a plan's node after which the suite compares only the kernel's state,
// because the lab does not have the node's new addresses.
var stateOnlyNodeChanges = []kind{
	{"the node's addresses change", func(c *changer) { c.spec.moreHostAddrs = []string{"node-7", "lb-9", "cluster-9"}[:c.IntN(4)] }},
}

func ofOne(change func(*changer, *service)) func(*changer) {
	return func(c *changer) { change(c, c.spec.services[c.IntN(len(c.spec.services))]) }
}

func ofSome(change func(*changer, *service)) func(*changer) {
	return func(c *changer) {
		for range 1 + c.IntN(12) {
			ofOne(change)(c)
		}
	}
}

func (c *changer) remove() {
	i := c.IntN(len(c.spec.services))
	c.spec.services = slices.Delete(c.spec.services, i, i+1)
}

func (c *changer) removeMany() {
	c.Shuffle(len(c.spec.services), func(i, j int) {
		c.spec.services[i], c.spec.services[j] = c.spec.services[j], c.spec.services[i]
	})
	c.spec.services = c.spec.services[:c.IntN(len(c.spec.services))]
}

func (c *changer) replace() {
	i := c.IntN(len(c.spec.services))
	old := c.spec.services[i]
	c.spec.services[i] = c.newService(old.number)
	c.spec.services[i].name = old.name
}

func (c *changer) swap() {
	services := c.spec.services
	i, j := c.IntN(len(services)), c.IntN(len(services))
	services[i].frontends, services[j].frontends = services[j].frontends, services[i].frontends
	services[i].number, services[j].number = services[j].number, services[i].number
}

func (c *changer) addEndpoint(svc *service) {
	for pool, from := range [][]string{allEndpoints, localEndpoints} {
		if e := from[c.IntN(len(from))]; !slices.Contains(svc.pools[pool], e) {
			svc.pools[pool] = append(svc.pools[pool], e)
		}
	}
}

func (c *changer) removeEndpoint(svc *service) {
	for pool := range svc.pools {
		if n := len(svc.pools[pool]); n > 0 {
			i := c.IntN(n)
			svc.pools[pool] = slices.Delete(svc.pools[pool], i, i+1)
		}
	}
}

func (c *changer) terminateEndpoint(svc *service) {
	for pool := range svc.pools {
		if n := len(svc.pools[pool]); n > 0 {
			i := c.IntN(n)
			svc.leaving = append(svc.leaving, svc.pools[pool][i])
			svc.pools[pool] = slices.Delete(svc.pools[pool], i, i+1)
		}
	}
}

func (c *changer) removeEndpoints(svc *service) {
	svc.leaving = nil
	svc.pools[plan.LocalPool] = nil
	if c.IntN(2) == 0 {
		svc.pools[plan.ClusterPool] = nil
	}
}

func (c *changer) addFrontend(svc *service) {
	c.addFrontendAt(svc, plan.FrontendKind(c.IntN(4)), uint16(80+c.IntN(4)))
}

func (c *changer) addFrontends(svc *service) {
	kind := plan.FrontendKind(c.IntN(4))
	for port := range uint16(8 + c.IntN(9)) {
		c.addFrontendAt(svc, kind, 80+port)
	}
}

func (c *changer) addFrontendAt(svc *service, kind plan.FrontendKind, port uint16) {
	f := c.newFrontend(svc, kind, port)
	if !slices.ContainsFunc(svc.frontends, func(o frontend) bool { return o.addr == f.addr && o.port == f.port }) {
		svc.frontends = append(svc.frontends, f)
	}
}

func (c *changer) removeFrontend(svc *service) {
	if n := len(svc.frontends); n > 1 {
		i := c.IntN(n)
		svc.frontends = slices.Delete(svc.frontends, i, i+1)
	}
}

func (c *changer) changeSources(svc *service) {
	for i := range svc.frontends {
		if svc.frontends[i].kind == plan.LoadBalancerIP {
			svc.frontends[i].from = c.chooseSources()
		}
	}
}

func (c *changer) changeNodePorts() {
	c.spec.nodePorts = [][]string{{"node-1", "node-2"}, {"node-1"}, {"node-2", "loopback"}, {"loopback"}, {}}[c.IntN(5)]
}

func (c *changer) changeServiceCIDRs() {
	more := netip.MustParsePrefix("10.97.0.0/16")
	c.spec.cidrs = [][]netip.Prefix{
		defaultServiceCIDRs, defaultServiceCIDRs[:1],
		{},
		append(slices.Clone(defaultServiceCIDRs), more),
	}[c.IntN(4)]
	c.spec.cidrs = slices.SortedFunc(slices.Values(c.spec.cidrs),
		func(a, b netip.Prefix) int { return strings.Compare(a.String(), b.String()) })
}

func (c *changer) changeHealthChecks() {
	c.spec.checks = nil
	for n := range c.IntN(3) {
		c.spec.checks = append(c.spec.checks, &plan.HealthCheck{
			Namespace: "default", Name: fmt.Sprintf("random-%d", n), Port: uint16(32700 + c.IntN(3)*10 + n), LocalReady: c.IntN(2),
		})
	}
}
