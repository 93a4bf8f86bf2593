package ipvs

import (
	"net/netip"

	"edgeway/proxiers/plan"
)

// key is what IPVS finds a virtual server by.
type key struct {
	proto plan.Protocol
	at    netip.AddrPort
}

// places says where the virtual servers are: that of the only pool in use, or of the cluster pool, at the ClusterIP and the Service's
// port, and that of the local pool beside it at the same address with another port, which the table rejects for all who
// connect to it.
type places struct {
	// moved are the ports of the servers of local pools that are not where they usually are, as another Service's port is there.
	moved map[member]uint16
	// crowded are the addresses of these servers.
	crowded map[netip.Addr]bool
}

// member is a ServicePort of a plan.
type member struct {
	name   plan.ServicePortName
	family plan.Family
}

func memberOf(svc *plan.ServicePort) member { return member{svc.Name, svc.Family} }

// nowhere are the addresses of virtual servers of ServicePorts that have a NodePort alone, as when another one has
// their ClusterIP: the dummy addresses of RFC 7600 and RFC 9780, which are nobody's. The port is the NodePort.
var nowhere = map[plan.Family]netip.Addr{plan.IPv4: netip.AddrFrom4([4]byte{192, 0, 0, 8}), plan.IPv6: netip.AddrFrom16([16]byte{0: 1, 7: 1, 15: 1})}

// otherPort is where the second server of an address is: as far as possible from ports that Services usually have.
func otherPort(port uint16) uint16 { return port ^ 1<<15 }

// anchor is where the first server of a ServicePort is; invalid without a frontend.
func anchor(svc *plan.ServicePort) netip.AddrPort {
	var at netip.AddrPort
	for i := range svc.Frontends {
		switch f := &svc.Frontends[i]; {
		case f.Kind == plan.ClusterIP:
			return netip.AddrPortFrom(f.Addr, f.Port)
		case f.Kind == plan.NodePort:
			return netip.AddrPortFrom(nowhere[svc.Family], f.Port)
		case !at.IsValid():
			at = netip.AddrPortFrom(f.Addr, f.Port)
		}
	}
	return at
}

// of gives where the server of a pool is.
func (p *places) of(svc *plan.ServicePort, pool plan.Pool) netip.AddrPort {
	first := anchor(svc)
	if pool == plan.ClusterPool || len(svc.Pools[plan.ClusterPool]) == 0 {
		return first
	}
	port, moved := p.moved[memberOf(svc)]
	if !moved {
		port = otherPort(first.Port())
	}
	return netip.AddrPortFrom(first.Addr(), port)
}

// keys visits the servers of a ServicePort with the endpoints of each.
func (p *places) keys(svc *plan.ServicePort, visit func(key, []plan.Endpoint)) {
	for pool, list := range svc.Pools {
		if at := p.of(svc, plan.Pool(pool)); len(list) > 0 && at.IsValid() {
			visit(key{svc.Name.Protocol, at}, list)
		}
	}
}

// settle chooses ports for all second servers of a plan, in its order.
func settle(p *plan.Plan) *places {
	taken := make(map[key]bool, len(p.Services))
	for _, svc := range p.Services {
		taken[key{svc.Name.Protocol, anchor(svc)}] = true
	}
	out := &places{moved: map[member]uint16{}, crowded: map[netip.Addr]bool{}}
	for _, svc := range p.Services {
		if len(svc.Pools[plan.ClusterPool]) == 0 || len(svc.Pools[plan.LocalPool]) == 0 {
			continue
		}
		first := anchor(svc)
		usual := otherPort(first.Port())
		port := usual
		for port == 0 || taken[key{svc.Name.Protocol, netip.AddrPortFrom(first.Addr(), port)}] {
			port++
		}
		taken[key{svc.Name.Protocol, netip.AddrPortFrom(first.Addr(), port)}] = true
		if port != usual {
			out.moved[memberOf(svc)], out.crowded[first.Addr()] = port, true
		}
	}
	return out
}

// stay says that the places of all servers stay what they are in spite of a change of these ServicePorts, if no two servers meet.
func (p *places) stay(changed []*plan.ServicePort) bool {
	for _, svc := range changed {
		if p.crowded[anchor(svc).Addr()] {
			return false
		}
	}
	return true
}
