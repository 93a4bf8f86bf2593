package ipvs

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

type key struct {
	proto plan.Protocol
	at    netip.AddrPort
}

func (k key) String() string { return fmt.Sprintf("virtual server %s/%s", k.at, k.proto) }

// allocator chooses the address and port of each virtual server. The address is the ClusterIP, and the port (for port
// 80, usually 10080 or 20080) depends on the Service's port and the pool. The rules in the nftables table reject client
// connections to a virtual server's port. A virtual server must not use the Service's own port. When IPVS removes a
// connection's endpoint, or after the connection has been idle for 15 minutes, IPVS removes the connection's entry, and
// also deletes the connection to the virtual server from connection tracking (Linux, ip_vs_conn_drop_conntrack).
type allocator struct {
	// movedPorts holds the port of each server that cannot use its usual port, because another server or a base address
	// uses that port.
	movedPorts map[pool]uint16
	// movedAddrs holds the addresses of the servers in movedPorts.
	movedAddrs map[netip.Addr]bool
	// baseAddrs holds the base address of each ServicePort.
	baseAddrs map[key]bool
}

type pool struct {
	name   plan.ServicePortName
	family plan.Family
	pool   plan.Pool
}

// dummyAddrs holds the dummy addresses from RFC 7600 and RFC 9780. A virtual server has a dummy address if its
// ServicePort has only a NodePort, for example because another ServicePort has the ClusterIP.
var dummyAddrs = map[plan.Family]netip.Addr{
	plan.IPv4: netip.AddrFrom4([4]byte{192, 0, 0, 8}),
	plan.IPv6: netip.AddrFrom16([16]byte{0: 1, 7: 1, 15: 1}),
}

// usualPort returns the port that a pool's server uses if the port is free.
func usualPort(port uint16, pool plan.Pool) uint16 { return port + 10_000*(1+uint16(pool)) }

// baseAddr returns the address and port that determine the addresses and ports of a ServicePort's servers, or an
// invalid AddrPort if the ServicePort has no frontend.
func baseAddr(svc *plan.ServicePort) netip.AddrPort {
	var at netip.AddrPort
	for i := range svc.Frontends {
		switch f := &svc.Frontends[i]; {
		case f.Kind == plan.ClusterIP:
			return netip.AddrPortFrom(f.Addr, f.Port)
		case f.Kind == plan.NodePort:
			return netip.AddrPortFrom(dummyAddrs[svc.Family], f.Port)
		case !at.IsValid():
			at = netip.AddrPortFrom(f.Addr, f.Port)
		}
	}
	return at
}

func (p *allocator) serverAddr(svc *plan.ServicePort, which plan.Pool) netip.AddrPort {
	beside := baseAddr(svc)
	port, moved := p.movedPorts[pool{svc.Name, svc.Family, which}]
	if !moved {
		port = usualPort(beside.Port(), which)
	}
	return netip.AddrPortFrom(beside.Addr(), port)
}

func (p *allocator) keys(svc *plan.ServicePort, visit func(key, []plan.Endpoint)) {
	for pool, list := range svc.Pools {
		if at := p.serverAddr(svc, plan.Pool(pool)); len(list) > 0 && at.IsValid() {
			visit(key{svc.Name.Protocol, at}, list)
		}
	}
}

// allocate chooses a port for each server in a plan, in plan order.
func allocate(p *plan.Plan) *allocator {
	out := &allocator{
		movedPorts: map[pool]uint16{}, movedAddrs: map[netip.Addr]bool{},
		baseAddrs: make(map[key]bool, len(p.Services)),
	}
	for _, svc := range p.Services {
		out.baseAddrs[key{svc.Name.Protocol, baseAddr(svc)}] = true
	}
	taken := maps.Clone(out.baseAddrs)
	// next holds, for each address, the port where the last search for a free port ended, so that thousands of searches
	// do not take quadratic time.
	next := map[key]uint16{}
	for _, svc := range p.Services {
		beside := baseAddr(svc)
		for i, list := range svc.Pools {
			which := plan.Pool(i)
			if len(list) == 0 {
				continue
			}
			usual := usualPort(beside.Port(), which)
			port, address := usual, key{svc.Name.Protocol, netip.AddrPortFrom(beside.Addr(), 0)}
			for port == 0 || taken[key{svc.Name.Protocol, netip.AddrPortFrom(beside.Addr(), port)}] {
				port = max(port, next[address]) + 1
				next[address] = port
			}
			taken[key{svc.Name.Protocol, netip.AddrPortFrom(beside.Addr(), port)}] = true
			if port != usual {
				out.movedPorts[pool{svc.Name, svc.Family, which}], out.movedAddrs[beside.Addr()] = port, true
			}
		}
	}
	return out
}

// updateBaseAddrs updates baseAddrs and reports whether all servers keep their addresses and ports. updateBaseAddrs
// returns false if a changed ServicePort collides, or collided, with another ServicePort.
func (p *allocator) updateBaseAddrs(change proxiers.Change) bool {
	var now []key
	for _, svc := range change.Removed {
		delete(p.baseAddrs, key{svc.Name.Protocol, baseAddr(svc)})
	}
	for _, svc := range change.Changed {
		if before := change.Prev.Find(svc.Name, svc.Family); before != nil {
			delete(p.baseAddrs, key{before.Name.Protocol, baseAddr(before)})
		}
		now = append(now, key{svc.Name.Protocol, baseAddr(svc)})
	}
	for _, k := range now {
		p.baseAddrs[k] = true
	}
	crowded := func(svc *plan.ServicePort) bool { return p.movedAddrs[baseAddr(svc).Addr()] }
	return !slices.ContainsFunc(change.Removed, crowded) && !slices.ContainsFunc(change.Changed, crowded) &&
		!slices.ContainsFunc(now, p.collides)
}

// collides reports whether the base address k collides with a server of another ServicePort, or one of k's servers
// collides with another base address. collides also returns true if one of k's servers has port 0.
func (p *allocator) collides(k key) bool {
	var svc plan.ServicePort
	for pool := range svc.Pools {
		up, down := k, k
		up.at = netip.AddrPortFrom(k.at.Addr(), usualPort(k.at.Port(), plan.Pool(pool)))
		down.at = netip.AddrPortFrom(k.at.Addr(), 2*k.at.Port()-up.at.Port())
		if p.baseAddrs[up] || p.baseAddrs[down] || up.at.Port() == 0 {
			return true
		}
	}
	return false
}
