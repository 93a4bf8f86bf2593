package nftables

import (
	"net/netip"

	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
)

func (o Options) serviceNeeds(n *nfttable.Needs, svc *plan.ServicePort) {
	aff := affinityOf(svc)
	if aff != nil {
		aff.addObjects(n, svc)
	}
	for i := range svc.Frontends {
		o.addFrontend(n, svc, &svc.Frontends[i], aff)
	}
	if o.AddService != nil {
		o.AddService(n, svc)
	}
	for _, list := range svc.Pools {
		for _, e := range list {
			if e.Local {
				n.AddShared(hairpin, nfttable.Element{
					Family: svc.Family, Proto: svc.Name.Protocol, Peer: e.Addr.Addr(), Addr: e.Addr.Addr(),
					Port: e.Addr.Port(),
				})
			}
		}
	}
}

func (o Options) to(svc *plan.ServicePort) [2][]plan.Endpoint {
	if o.Destination == nil {
		return svc.Pools
	}
	var to [2][]plan.Endpoint
	for pool, list := range svc.Pools {
		if len(list) > 0 {
			to[pool] = []plan.Endpoint{{Addr: o.Destination(svc, plan.Pool(pool))}}
		}
	}
	return to
}

func (o Options) addFrontend(n *nfttable.Needs, svc *plan.ServicePort, f *plan.Frontend, aff *affinity) {
	to := o.to(svc)
	c := classOf(svc, f, to, aff)
	c.masqueradeStatement = o.MasqueradeStatement
	if c.affinity != nil {
		addClass(n, svc.Family, c.plainClass())
	}
	key := nfttable.Element{Family: svc.Family, Proto: svc.Name.Protocol, Port: f.Port}
	lookup, guard, learning := nodePorts, nodePortAllowed, learnNodePorts
	if f.Kind != plan.NodePort {
		key.Addr = f.Addr
		lookup, guard, learning = services, allowed, learn
	}
	n.AddEntry(lookup, key, nfttable.Value{Number: addClass(n, svc.Family, c)})
	if o.CountConnections {
		n.AddEntry(o.countSet(f.Kind), key, nfttable.Value{})
	}
	for _, p := range f.AllowFrom {
		e := key
		e.Peer, e.PeerBits = p.Addr(), uint8(p.Bits())
		n.AddEntry(guard, e, nfttable.Value{})
	}
	var used [2]bool
	for _, p := range c.originRoutes {
		used[p.Pool] = used[p.Pool] || p.count > 0
	}
	for pool, list := range to {
		if !used[pool] {
			continue
		}
		for i, ep := range list {
			e := nfttable.Element{
				Family: key.Family, Addr: key.Addr, Port: key.Port, Slot: uint32(i + pool*firstLocalSlot),
			}
			n.AddEntry(endpointSet(key.Proto, c.nodePort), e, nfttable.Value{Endpoint: ep.Addr})
		}
	}
	if aff != nil {
		aff.addEntries(n, svc, key, learning)
	}
	if f.Kind == plan.ClusterIP {
		n.AddShared(clusterIPs, nfttable.Element{Family: svc.Family, Addr: f.Addr})
	}
}

func addClass(n *nfttable.Needs, f plan.Family, c *class) nfttable.ChainNumber {
	id := nfttable.ObjectID{Family: f, Kind: nfttable.ChainObject, Name: c.chain()}
	return n.AddChain(nfttable.Object{ObjectID: id, Rules: c})
}

// nodeEntries returns the elements for the addresses where NodePorts accept connections, including loopback addresses.
func nodeEntries(n *plan.Node) (entries []nfttable.Entry) {
	for _, a := range n.NodePortAddrs {
		if !a.IsLoopback() {
			entries = append(entries,
				nfttable.Entry{Element: nfttable.Element{Family: plan.FamilyOf(a), Set: nodePortAddrs, Addr: a}})
		}
	}
	for _, a := range n.LoopbackAddrs {
		entries = append(entries,
			nfttable.Entry{Element: nfttable.Element{Family: plan.FamilyOf(a), Set: loopbackAddrs, Addr: a}})
	}
	return entries
}

// AddRejectElement adds an element that causes the rules to reject connections to an address and port that no frontend
// of the ServicePort uses.
func AddRejectElement(n *nfttable.Needs, svc *plan.ServicePort, at netip.AddrPort) {
	c := &class{proto: svc.Name.Protocol}
	for origin := range c.originRoutes {
		c.originRoutes[origin].Verdict = plan.UnusedPortVerdict
	}
	key := nfttable.Element{Family: svc.Family, Proto: svc.Name.Protocol, Addr: at.Addr(), Port: at.Port()}
	n.AddEntry(services, key, nfttable.Value{Number: addClass(n, svc.Family, c)})
}
