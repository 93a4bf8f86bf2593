package planner

import (
	"net/netip"
	"slices"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// endpoint is one endpoint of one port.
type endpoint struct {
	*source.Endpoint
	addr  netip.AddrPort
	local bool
}

// draining is an endpoint that stops, but still serves.
func (e *endpoint) draining() bool { return e.Serving && e.Terminating }

// endpoints gives those of the slices' ports of this name and protocol, sorted by address and port, each
// once: where several slices have it, one that is not terminating wins, then the last one. The result
// is valid until the next call.
func (p *Planner) endpoints(slicesOf []*source.EndpointSlice, port *source.ServicePort, family plan.Family) []endpoint {
	all := p.scratch[:0]
	for _, s := range slicesOf {
		if s.Family != family {
			continue
		}
		for _, sp := range s.Ports {
			if sp.Name != port.Name || sp.Protocol != port.Protocol {
				continue
			}
			for i := range s.Endpoints {
				e := &s.Endpoints[i]
				all = append(all, endpoint{e, netip.AddrPortFrom(e.Addr, sp.Port), p.env.isLocal(e)})
			}
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

// isLocal: only the node name tells; without one an endpoint is nowhere.
func (e *environment) isLocal(ep *source.Endpoint) bool {
	return ep.NodeName != "" && ep.NodeName == e.nodeName
}

// pools are the endpoints to choose from. reachable says that there is one anywhere, whether or not it
// is in a pool.
type pools struct {
	cluster, local []plan.Endpoint
	reachable      bool
}

// choosePools applies readiness, topology and termination. Each pool holds the ready endpoints, or when
// there are none those that still serve while they stop; so one pool can be of ready endpoints while
// the other is of stopping ones. Topology concerns the cluster pool alone, and never the stopping.
func (e *environment) choosePools(endpoints []endpoint) pools {
	var out pools
	near := e.topology(endpoints)
	out.cluster = collect(endpoints, func(ep *endpoint) bool { return ep.Ready && near(ep) })
	if out.cluster == nil {
		out.cluster = collect(endpoints, (*endpoint).draining)
	}
	out.reachable = out.cluster != nil
	out.local = collect(endpoints, func(ep *endpoint) bool { return ep.Ready && ep.local })
	if out.local == nil {
		out.local = collect(endpoints, func(ep *endpoint) bool { return ep.local && ep.draining() })
	}
	return out
}

// collect gives those that fit; nil when there are none.
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
			pool = append(pool, plan.Endpoint{Addr: endpoints[i].addr, Local: endpoints[i].local})
		}
	}
	return pool
}

// topology gives the condition that hints set: when every ready endpoint has hints for nodes and one of
// them is for this node, only those for this node; else the same with zones; else none. A single
// endpoint without a hint puts the kind of hint out of force. What the Service asks for
// (spec.trafficDistribution) is already in the hints.
func (e *environment) topology(endpoints []endpoint) func(*endpoint) bool {
	forNode := func(ep *endpoint) []string { return ep.ForNodes }
	forZone := func(ep *endpoint) []string { return ep.ForZones }
	switch {
	case hinted(endpoints, forNode, e.nodeName):
		return func(ep *endpoint) bool { return slices.Contains(ep.ForNodes, e.nodeName) }
	case hinted(endpoints, forZone, e.zone):
		return func(ep *endpoint) bool { return slices.Contains(ep.ForZones, e.zone) }
	}
	return func(*endpoint) bool { return true }
}

func hinted(endpoints []endpoint, hints func(*endpoint) []string, own string) bool {
	found := false
	for i := range endpoints {
		ep := &endpoints[i]
		if !ep.Ready {
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

// serving gives all endpoints that connections may still have.
func serving(endpoints []endpoint) []netip.AddrPort {
	var out []netip.AddrPort
	for i := range endpoints {
		if endpoints[i].Ready || endpoints[i].Serving {
			out = append(out, endpoints[i].addr)
		}
	}
	return out
}
