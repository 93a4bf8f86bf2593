package planner

import (
	"net/netip"
	"slices"
	"strconv"

	"edgeway/daemon/config"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// serviceResult is the result of planning one Service. The zero value is the result for a Service that does not exist.
type serviceResult struct {
	ports    []*plan.ServicePort
	health   []*plan.HealthCheck // at most one
	problems []fault.Fault
	checked  []netip.AddrPort // the endpoints to check, sorted
}

// planService plans one Service. svc may be nil. If planning the Service panics, the result contains only a fault.
func (p *Planner) planService(svc *tracker.Service) (out serviceResult) {
	if svc == nil {
		return out
	}
	err := contain.Call(func() error {
		if p.opts.BeforeService != nil {
			p.opts.BeforeService(svc.Spec.Key())
		}
		out = p.decide(svc)
		return nil
	})
	if err != nil {
		return serviceResult{problems: []fault.Fault{
			source.FaultOf(svc.Spec.Key(), "", "planning the Service failed: %s", err),
		}}
	}
	return out
}

func (p *Planner) decide(svc *tracker.Service) (out serviceResult) {
	found := &source.Faults{Object: svc.Spec.Key()}
	defer func() { out.problems = found.List() }()
	if why := p.sizeRefusal(nameOf(svc.Spec)); why != "" {
		found.Addf("", "%s", why)
		return out
	}
	vips := p.vips(svc.Spec, found)
	svc = p.admit(svc, found)
	backends := p.index(svc)
	for i := range svc.Spec.Ports {
		frontends := p.frontends(svc.Spec, vips, i, found)
		longLived := p.usesFastPath(svc.Spec, i, found)
		for _, family := range p.env.families {
			if sp := servicePort(svc.Spec, i, family, frontends); sp != nil {
				sp.LongLived, sp.Scheduler = longLived, svc.Spec.Scheduler
				out.ports = append(out.ports, sp)
			}
		}
	}
	out.checked = p.targets(out.ports, backends)
	p.checked = out.checked
	for _, sp := range out.ports {
		p.setRoutes(svc.Spec, sp, backends)
	}
	slices.SortFunc(out.ports, (*plan.ServicePort).Compare)
	if h := p.healthCheck(svc, found); h != nil {
		out.health = []*plan.HealthCheck{h}
	}
	return out
}

// frontends returns the frontends that the Service owns for one of its ports. The frontends' plan.Routes are not set
// yet. A NodePort has a single frontend for both address families.
func (p *Planner) frontends(s *source.Service, vips []vip, index int, found *source.Faults) (out []plan.Frontend) {
	port := &s.Ports[index]
	for _, v := range vips {
		if why := p.vipPortRefusal(v, port.Protocol, port.Port); why != "" {
			found.Addf(addrFields[v.kind], "%s", why)
		} else if p.owns(s, exclusivePort{v.addr, port.Protocol, port.Port}, addrFields[v.kind], found) {
			out = append(out, plan.Frontend{Kind: v.kind, Addr: v.addr, Port: port.Port})
		}
	}
	field := func() string { return "spec.ports[" + strconv.Itoa(index) + "].nodePort" }
	if port.NodePort != 0 && p.isReachable(s) && p.owns(s, nodePortOf(port), field(), found) {
		out = append(out, plan.Frontend{Kind: plan.NodePort, Port: port.NodePort})
	}
	return out
}

// servicePort returns a ServicePort whose pools and plan.Routes are not set yet, or nil if there are no frontends.
func servicePort(spec *source.Service, index int, family plan.Family, frontends []plan.Frontend) *plan.ServicePort {
	port := &spec.Ports[index]
	if !hasFamily(spec, family) {
		return nil
	}
	sp := &plan.ServicePort{
		Name: plan.ServicePortName{
			Namespace: spec.Namespace, Name: spec.Name, Port: port.Name,
			Protocol: port.Protocol,
		},
		Family:   family,
		Affinity: spec.Affinity,
	}
	for _, f := range frontends {
		if f.Kind == plan.NodePort || plan.FamilyOf(f.Addr) == family {
			sp.Frontends = append(sp.Frontends, f)
		}
	}
	if len(sp.Frontends) == 0 {
		return nil
	}
	slices.SortFunc(sp.Frontends, func(a, b plan.Frontend) int { return a.Compare(&b) })
	return sp
}

// usesFastPath reports whether a port uses the fast path, and adds a fault if there is no fast path for the port's
// protocol.
func (p *Planner) usesFastPath(s *source.Service, index int, found *source.Faults) bool {
	f := &p.opts.FastPath
	named := f.Enabled && slices.Contains(f.Services, config.ServiceName(nameOf(s)))
	if !s.LongLived && !named {
		return false
	}
	port := &s.Ports[index]
	if port.Protocol == plan.SCTP {
		found.Addf("spec.ports["+strconv.Itoa(index)+"].protocol",
			"the Service opted in to the fast path, but only TCP and UDP connections can use the fast path")
		return false
	}
	return true
}

// setRoutes sets sp's pools and the plan.Routes of sp's frontends.
func (p *Planner) setRoutes(spec *source.Service, sp *plan.ServicePort, b backends) {
	endpoints := p.endpoints(b, keyOf(sp))
	weigh(endpoints, spec.Weights)
	pools := p.env.choosePools(endpoints)
	policy := newPolicy(pools)
	policy.detectsPods, policy.masqueradeAll = p.env.detects(sp.Family), p.opts.Proxy.MasqueradeAll
	policy.masqueradeHost = slices.Contains(p.env.guessedFamilies, sp.Family)
	bound := !p.env.localAsCluster || pools.local != nil // whether the Local policies apply
	for i := range sp.Frontends {
		f := &sp.Frontends[i]
		if f.Kind == plan.ClusterIP {
			f.Routes = policy.internalRoutes(spec.InternalLocal && bound)
		} else {
			f.Routes = policy.externalRoutes(spec.ExternalLocal && bound)
		}
		if f.Kind == plan.LoadBalancerIP {
			f.AllowFrom = p.env.allowedSources(spec, f.Addr)
		}
	}
	keepUsedPools(sp, pools)
	sp.Serving = p.servingEndpoints(endpoints, sp)
	sp.Seal()
}

// keepUsedPools copies from p to sp only the pools that a plan.Route of sp uses.
func keepUsedPools(sp *plan.ServicePort, p pools) {
	for i := range sp.Frontends {
		for _, r := range sp.Frontends[i].Routes {
			switch {
			case r.Verdict != plan.Forward:
			case r.Pool == plan.LocalPool:
				sp.Pools[plan.LocalPool] = p.local
			default:
				sp.Pools[plan.ClusterPool] = p.cluster
			}
		}
	}
}

// allowedSources returns the sources that may connect to a load-balancer address, or nil if all sources may connect. If
// the Service's source ranges contain an address of this host, the host itself may connect. allowedSources then adds
// the load-balancer address to the ranges: if a device of this host has that address, the kernel uses it as the source
// of the host's connections.
func (e *environment) allowedSources(s *source.Service, addr netip.Addr) []netip.Prefix {
	family := plan.FamilyOf(addr)
	if slices.Contains(s.BlockedFamilies, family) {
		return []netip.Prefix{}
	}
	ranges := plan.FilterByFamily(s.SourceRanges, family)
	if len(ranges) == 0 || slices.ContainsFunc(ranges, func(r netip.Prefix) bool { return r.Bits() == 0 }) {
		return nil
	}
	if slices.ContainsFunc(e.nodeAddrs, func(a netip.Addr) bool { return contains(ranges, a) }) {
		ranges = append(ranges, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return plan.NormalizePrefixes(ranges)
}

// healthCheck returns the plan for the healthCheckNodePort, or nil if the Service has no such port. A pod of a
// dual-stack Service has an address in each family, so healthCheck counts the addresses of each family separately and
// reports the larger number. healthCheck counts dead endpoints only if all endpoints of the Service are dead.
func (p *Planner) healthCheck(svc *tracker.Service, found *source.Faults) *plan.HealthCheck {
	c, ok := healthCheckPort(svc.Spec)
	if !ok || !p.owns(svc.Spec, c, "spec.healthCheckNodePort", found) {
		return nil
	}
	ready, alive, answered := newAddrSets(), newAddrSets(), false
	for _, s := range svc.Slices {
		if len(s.Ports) == 0 || !p.env.serves(s.Family) {
			continue
		}
		for i := range s.Endpoints {
			e := &s.Endpoints[i]
			if !e.Ready {
				continue
			}
			dead := p.isUnresponsive(s, e)
			answered = answered || !dead
			if !p.env.isLocal(e) {
				continue
			}
			ready[s.Family][e.Addr] = struct{}{}
			if !dead {
				alive[s.Family][e.Addr] = struct{}{}
			}
		}
	}
	if !answered {
		alive = ready
	}
	return &plan.HealthCheck{
		Namespace: svc.Spec.Namespace, Name: svc.Spec.Name, Port: c.port,
		LocalReady: max(len(alive[plan.IPv4]), len(alive[plan.IPv6])),
	}
}

// addrSets holds the distinct endpoint addresses of each family.
type addrSets map[plan.Family]map[netip.Addr]struct{}

func newAddrSets() addrSets { return addrSets{plan.IPv4: {}, plan.IPv6: {}} }

type routes = [3]plan.Route

// policy determines the plan.Routes of one ServicePort.
type policy struct {
	cluster, local plan.Route // the plan.Routes to each pool, without SNAT
	detectsPods    bool       // whether Edgeway can distinguish pods from other sources
	masqueradeAll  bool
	// masqueradeHost reports whether one of Edgeway's kernel routes determines the source address of the host's own
	// connections before Edgeway chooses the endpoint. Edgeway then masquerades these connections.
	masqueradeHost bool
}

// newPolicy returns a policy that rejects connections to a pool without endpoints. If only the local pool is empty, the
// policy drops connections to it, so that a load balancer tries another host.
func newPolicy(p pools) policy {
	out := policy{
		cluster: plan.Route{Verdict: plan.Forward, Pool: plan.ClusterPool},
		local:   plan.Route{Verdict: plan.Forward, Pool: plan.LocalPool},
	}
	if p.cluster == nil {
		out.cluster = plan.Route{Verdict: plan.Reject}
	}
	switch {
	case p.local != nil:
	case p.reachable:
		out.local = plan.Route{Verdict: plan.Drop}
	default:
		out.local = plan.Route{Verdict: plan.Reject}
	}
	return out
}

// internalRoutes returns the plan.Routes of a ClusterIP. If Edgeway can distinguish pods from other sources, it
// masquerades connections from all other sources, because the endpoint may have no route back to the source. Without a
// default route, Edgeway also masquerades the host's own connections, because their source address and the endpoint may
// be on different links.
func (p policy) internalRoutes(local bool) (r routes) {
	for origin := range r {
		guessed := p.masqueradeHost && plan.Origin(origin) == plan.FromHost
		r[origin] = p.pick(local, p.masqueradeAll || guessed || p.detectsPods && plan.Origin(origin) != plan.FromPod)
	}
	return r
}

// externalRoutes returns the plan.Routes of a frontend that is not a ClusterIP.
//
// With the Local policy, connections from outside keep their source address. The Local policy does not apply to
// connections from pods or from the host itself. Edgeway short-circuits connections from pods and from the host: they
// can reach any endpoint, as if they came through a load balancer. Edgeway masquerades the host's connections, because
// their source and destination may be the same address. If Edgeway cannot distinguish pods from other sources, it
// treats connections from pods like connections from outside.
func (p policy) externalRoutes(local bool) (r routes) {
	for origin := range r {
		r[origin] = p.pick(false, !local || plan.Origin(origin) == plan.FromHost)
	}
	if !local {
		return r
	}
	r[plan.FromOutside] = p.pick(true, false)
	if !p.detectsPods {
		r[plan.FromPod] = r[plan.FromOutside]
	}
	return r
}

func (p policy) pick(local, snat bool) plan.Route {
	r := p.cluster
	if local {
		r = p.local
	}
	r.SNAT = snat && r.Verdict == plan.Forward
	return r
}
