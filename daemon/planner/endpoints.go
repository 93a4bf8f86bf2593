package planner

import (
	"fmt"
	"net/netip"
	"slices"

	"edgeway/daemon/source"
	"edgeway/daemon/text"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

type endpoint struct {
	*source.Endpoint
	addr  netip.AddrPort
	local bool
	// dead reports whether the endpoint is ready but does not respond.
	dead   bool
	weight uint16
}

func (e *endpoint) isAlive() bool { return e.Ready && !e.dead }

// isReady reports whether the endpoint is marked ready, regardless of whether it responds.
func (e *endpoint) isReady() bool { return e.Ready }

func (e *endpoint) isDraining() bool { return e.Serving && e.Terminating }

// admit returns the Service without the endpoints that endpointRefusal refuses, and reports each refused endpoint as a
// fault.
func (p *Planner) admit(svc *tracker.Service, found *source.Faults) *tracker.Service {
	out := svc
	for i, s := range svc.Slices {
		refused := func(e source.Endpoint) bool { return p.endpointRefusal(s, e.Addr) != "" }
		if !slices.ContainsFunc(s.Endpoints, refused) {
			continue
		}
		if out == svc {
			out = &tracker.Service{Spec: svc.Spec, Slices: slices.Clone(svc.Slices)}
		}
		rest := *s
		rest.Endpoints = nil
		for _, e := range s.Endpoints {
			if why := p.endpointRefusal(s, e.Addr); why != "" {
				found.Addf("", "endpoint %s of EndpointSlice %s %s", e.Addr, s.Name, why)
			} else {
				rest.Endpoints = append(rest.Endpoints, e)
			}
		}
		out.Slices[i] = &rest
	}
	return out
}

// endpointRefusal returns the reason why no Service may have an endpoint at the address, or "" if there is none.
func (p *Planner) endpointRefusal(s *source.EndpointSlice, a netip.Addr) string {
	a = source.TranslateNAT64(a)
	switch {
	case hasAddr(p.env.broadcasts, a):
		return "is the broadcast or network address of one of this host's networks"
	case contains(p.opts.Proxy.DenyEndpoints.Prefixes, a):
		return "is in a range of proxy.deny_endpoints"
	case p.env.denyHost && !s.Manifest && hasAddr(p.env.hostAddrs, a):
		return `is an address of this host, which has no Node object: to allow it, remove "host" from proxy.deny_endpoints`
	}
	return ""
}

// portKey identifies a Service port and the matching ports in the Service's EndpointSlices.
type portKey struct {
	name     string
	protocol plan.Protocol
	family   plan.Family
}

func keyOf(sp *plan.ServicePort) portKey { return portKey{sp.Name.Port, sp.Name.Protocol, sp.Family} }

// candidates holds the endpoints of an EndpointSlice for one of the slice's ports.
type candidates struct {
	slice *source.EndpointSlice
	port  uint16
}

type backends map[portKey][]candidates

// maxIndex is the maximum number of ports in an index that the Planner reuses for the next Service. The time to clear a
// map is proportional to the largest size that the map ever had.
const maxIndex = 64

// index maps a Service's ports to endpoints in one pass over the EndpointSlices. The result is valid until the next
// call to index.
func (p *Planner) index(svc *tracker.Service) backends {
	if len(p.ports) > maxIndex || p.ports == nil {
		p.ports = make(map[portKey][]candidates, len(svc.Spec.Ports))
	}
	clear(p.ports)
	for i := range svc.Spec.Ports {
		for _, f := range p.env.families {
			if hasFamily(svc.Spec, f) {
				p.ports[portKey{svc.Spec.Ports[i].Name, svc.Spec.Ports[i].Protocol, f}] = nil
			}
		}
	}
	for _, s := range svc.Slices {
		for _, sp := range s.Ports {
			key := portKey{sp.Name, sp.Protocol, s.Family}
			if list, ok := p.ports[key]; ok {
				p.ports[key] = append(list, candidates{s, sp.Port})
			}
		}
	}
	return p.ports
}

// endpoints returns the endpoints of one port, sorted by address and port. If several slices contain an endpoint, the
// last entry that is not terminating takes precedence, or the last entry if all are terminating. The result is valid
// until the next call to endpoints.
func (p *Planner) endpoints(b backends, key portKey) []endpoint {
	all := p.scratch[:0]
	for _, c := range b[key] {
		for i := range c.slice.Endpoints {
			e := &c.slice.Endpoints[i]
			all = append(all, endpoint{
				e, netip.AddrPortFrom(e.Addr, c.port), p.env.isLocal(e),
				p.isDead(c, e, key.protocol), 0,
			})
		}
	}
	p.scratch = all
	slices.SortStableFunc(all, func(a, b endpoint) int { return a.addr.Compare(b.addr) })
	unique := all[:0]
	for _, e := range all {
		switch last := len(unique) - 1; {
		case last < 0 || unique[last].addr != e.addr:
			unique = append(unique, e)
		case unique[last].Terminating || !e.Terminating:
			unique[last] = e
		}
	}
	return unique
}

func weigh(endpoints []endpoint, weights []source.Weight) {
	if len(weights) == 0 {
		return
	}
	for i := range endpoints {
		e := endpoints[i].Endpoint
		if n := slices.IndexFunc(weights, func(w source.Weight) bool { return w.Fits(e) }); n >= 0 {
			endpoints[i].weight = weights[n].Weight
		}
	}
}

// isLocal reports whether the endpoint is on this host. An endpoint without a node name is not local to any host.
func (e *environment) isLocal(ep *source.Endpoint) bool {
	return ep.NodeName != "" && ep.NodeName == e.nodeName
}

// pools holds the endpoints for new connections. reachable reports whether any host has an endpoint.
type pools struct {
	cluster, local []plan.Endpoint
	reachable      bool
}

// choosePools chooses the endpoints of each pool by readiness, check results, topology hints and termination. Each pool
// holds the ready endpoints that are alive. If no endpoint is alive, the pool holds all ready endpoints. If no endpoint
// is ready, the pool holds the terminating endpoints that still serve connections. One pool can therefore hold ready
// endpoints while the other one holds terminating endpoints. Topology hints apply only to the ready endpoints of the
// cluster pool.
func (e *environment) choosePools(endpoints []endpoint) pools {
	var out pools
	usable := (*endpoint).isReady
	if slices.ContainsFunc(endpoints, func(ep endpoint) bool { return ep.isAlive() }) {
		usable = (*endpoint).isAlive
	}
	near := e.topologyFilter(endpoints, usable)
	out.cluster = collect(endpoints, func(ep *endpoint) bool { return usable(ep) && near(ep) })
	if out.cluster == nil {
		out.cluster = collect(endpoints, (*endpoint).isDraining)
	}
	out.reachable = out.cluster != nil
	out.local = collect(endpoints, func(ep *endpoint) bool { return ep.isAlive() && ep.local })
	if out.local == nil {
		out.local = collect(endpoints, func(ep *endpoint) bool { return ep.Ready && ep.local })
	}
	if out.local == nil {
		out.local = collect(endpoints, func(ep *endpoint) bool { return ep.local && ep.isDraining() })
	}
	return out
}

func collect(endpoints []endpoint, fits func(*endpoint) bool) []plan.Endpoint {
	n := 0
	for i := range endpoints {
		if fits(&endpoints[i]) {
			n++
		}
	}
	if n == 0 {
		return nil
	}
	pool := make([]plan.Endpoint, 0, n)
	for i := range endpoints {
		if fits(&endpoints[i]) {
			pool = append(pool, plan.Endpoint{
				Addr: endpoints[i].addr, Weight: endpoints[i].weight,
				Local: endpoints[i].local,
			})
		}
	}
	return pool
}

// topologyFilter returns a function that reports whether the hints allow an endpoint. If every usable endpoint has node
// hints and at least one hint names this node, the function allows only the endpoints for this node. If node hints do
// not apply but zone hints do, the function allows only the endpoints for this node's zone. If no hints apply, the
// function allows all endpoints. Hints of one kind do not apply if any usable endpoint lacks a hint of that kind. The
// hints already reflect the Service's spec.trafficDistribution.
func (e *environment) topologyFilter(endpoints []endpoint, usable func(*endpoint) bool) func(*endpoint) bool {
	forNode := func(ep *endpoint) []string { return ep.Nodes() }
	forZone := func(ep *endpoint) []string { return ep.Zones() }
	switch {
	case hinted(endpoints, usable, forNode, e.nodeName):
		return func(ep *endpoint) bool { return slices.Contains(ep.Nodes(), e.nodeName) }
	case hinted(endpoints, usable, forZone, e.zone):
		return func(ep *endpoint) bool { return slices.Contains(ep.Zones(), e.zone) }
	}
	return func(*endpoint) bool { return true }
}

func hinted(endpoints []endpoint, usable func(*endpoint) bool, hints func(*endpoint) []string, own string) bool {
	found := false
	for i := range endpoints {
		ep := &endpoints[i]
		if !usable(ep) {
			continue
		}
		list := hints(ep)
		if len(list) == 0 {
			return false
		}
		found = found || own != "" && slices.Contains(list, own)
	}
	return found
}

// servingEndpoints returns all endpoints that may still have connections. The result includes a dead endpoint only if
// one of sp's pools contains it. If the result equals a pool, servingEndpoints returns that pool.
func (p *Planner) servingEndpoints(endpoints []endpoint, sp *plan.ServicePort) []plan.Endpoint {
	out := p.served[:0]
	for i := range endpoints {
		ep := &endpoints[i]
		if (ep.Ready || ep.Serving) && (!ep.dead || chosen(sp, ep.addr)) {
			out = append(out, plan.Endpoint{Addr: ep.addr, Local: ep.local})
		}
	}
	p.served = out
	for _, pool := range sp.Pools {
		if slices.Equal(pool, out) {
			return pool
		}
	}
	return slices.Clone(out)
}

// NoEndpointFault returns a fault that explains why a Service port has no endpoint in a family. ok is false if the port
// has an endpoint that is ready or still serves connections. NoEndpointFault considers only the EndpointSlices, and
// ignores whether the planner refuses an endpoint.
func NoEndpointFault(svc *tracker.Service, port plan.ServicePortName, family plan.Family) (f fault.Fault, ok bool) {
	label := fmt.Sprintf("the label kubernetes.io/service-name: %s", svc.Spec.Name)
	var ofFamily, named []*source.EndpointSlice
	for _, s := range svc.Slices {
		if s.Family != family {
			continue
		}
		ofFamily = append(ofFamily, s)
		if hasPort(s, port) {
			named = append(named, s)
		}
	}
	switch {
	case len(svc.Slices) == 0:
		return missingEndpointFault(
			"the Service has no EndpointSlice",
			"correct the Service's selector so that it matches pods, or write an EndpointSlice with "+label,
		), true
	case len(ofFamily) == 0:
		return missingEndpointFault(
			fmt.Sprintf("the Service has no EndpointSlice of addressType %s, only of %s", family, svc.Slices[0].Family),
			fmt.Sprintf("give the pods %[1]s addresses, or write an EndpointSlice with addressType %[1]s and %[2]s",
				family, label),
		), true
	case len(named) == 0:
		message := "the Service's EndpointSlices have no ports"
		if others := portsOf(ofFamily); others != "" {
			message = fmt.Sprintf("the Service's EndpointSlices have no port %s, only %s",
				quotedPort(port.Port, port.Protocol), others)
		}
		return missingEndpointFault(message, "use the Service's port name and protocol in EndpointSlices"), true
	}
	return unreadyFault(svc.Spec, named)
}

// unreadyFault returns a fault that explains why a port has no endpoint although the slices contain the port.
func unreadyFault(svc *source.Service, named []*source.EndpointSlice) (fault.Fault, bool) {
	var addrs []netip.Addr
	for _, s := range named {
		for _, e := range s.Endpoints {
			if e.Ready || e.Serving && e.Terminating {
				return fault.Fault{}, false
			}
			addrs = append(addrs, e.Addr)
		}
	}
	addrs = sortAddrs(addrs)
	if len(addrs) == 0 {
		return missingEndpointFault(
			fmt.Sprintf("the EndpointSlice %s has no endpoints", named[0].Name),
			"correct the Service's selector so that it matches running pods, or write endpoints into "+
				"the EndpointSlice",
		), true
	}
	return missingEndpointFault(
		fmt.Sprintf("no endpoint is ready: %s", text.FirstOf(addrs)),
		fmt.Sprintf("find out why the pods are not ready (kubectl -n %s describe pods), "+
			"or set conditions.ready of the endpoints to true", svc.Namespace),
	), true
}

func hasPort(s *source.EndpointSlice, port plan.ServicePortName) bool {
	return slices.ContainsFunc(s.Ports, func(p source.SlicePort) bool {
		return p.Name == port.Port && p.Protocol == port.Protocol
	})
}

func portsOf(list []*source.EndpointSlice) string {
	var out []string
	for _, s := range list {
		for _, p := range s.Ports {
			out = append(out, quotedPort(p.Name, p.Protocol))
		}
	}
	slices.Sort(out)
	return text.FirstOf(slices.Compact(out))
}

func quotedPort(name string, protocol plan.Protocol) string {
	if name == "" {
		return fmt.Sprintf("%s without a name", protocol)
	}
	return fmt.Sprintf("%q/%s", name, protocol)
}

// missingEndpointFault returns a fault for a ServicePort without an endpoint. The message must read well after the
// prefix "namespace/name:port: ".
func missingEndpointFault(message, fix string) fault.Fault {
	return fault.Fault{ID: NoEndpointID, Severity: fault.Notice, Message: message, Fix: fix}
}
