package planner

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// environment is all that the plan of a Service depends on besides the options and the Service
// itself. When it changes, every Service is planned anew; so it leaves out what changes with every
// pod, the link-local addresses of the host.
type environment struct {
	families []plan.Family // to serve
	detect   []plan.Family // those in which pods can be told
	nodeName string
	zone     string
	// localAsCluster is Options.LocalAsCluster on a host without a Node object.
	localAsCluster bool
	// nodeAddrs are the host's own addresses in the cluster's eyes, per family: the options', else the
	// Node object's, else those of the default route. Sorted.
	nodeAddrs []netip.Addr
	// held are the host's addresses and nodeAddrs; real are those of them that are not on a device of type
	// dummy alone. Both are sorted.
	held, real []netip.Addr
	// apiServers are those of the snapshot; the others are those of the host, but for link-local ones.
	apiServers, gateways, broadcasts, nameServers []netip.Addr
	// apiPorts are the ports of API servers, if one of them is on this host.
	apiPorts []uint16
	// serviceCIDRs are the ranges that ClusterIPs come from.
	serviceCIDRs []netip.Prefix
	// denyHost says that endpoints at held addresses are left out.
	denyHost bool
	// guessed are the families in which own routes give the host's connections to ClusterIPs their source, before anybody knows which
	// way the endpoint is.
	guessed []plan.Family
	// portless are the families in which "primary" stands for no address, though the host has one, and why.
	portless []portless
}

func (e *environment) equal(o *environment) bool { return reflect.DeepEqual(e, o) }

func (e *environment) serves(f plan.Family) bool  { return slices.Contains(e.families, f) }
func (e *environment) detects(f plan.Family) bool { return slices.Contains(e.detect, f) }

// surroundings computes the environment and the plan's view of the host, and what is left out of it.
func (o *Options) surroundings(snap *tracker.Snapshot, host *nodeinfo.Host) (*environment, *plan.Node, []source.Problem) {
	node := snap.Node
	env := &environment{
		localAsCluster: o.LocalAsCluster && node == nil, denyHost: o.DenyHostEndpoints && node == nil,
		apiServers: snap.APIServers, broadcasts: host.Broadcasts, nameServers: host.NameServers,
	}
	for _, a := range host.Gateways {
		if !a.IsLinkLocalUnicast() { // no Service may have such an address, and routers with IPv6 have many
			env.gateways = append(env.gateways, a)
		}
	}
	if node == nil {
		node = &source.Node{}
	}
	env.nodeName, env.zone = cmp.Or(o.NodeName, node.Name), cmp.Or(o.Zone, node.Zone)
	out := &plan.Node{Name: env.nodeName, PodInterfaces: slices.Sorted(slices.Values(o.Pods.Interfaces))}
	out.HostAddrs = env.takeAddrs(host)

	pods := slices.Clone(o.Pods.CIDRs)
	if o.Pods.NodeCIDRs {
		pods = append(pods, node.PodCIDRs...)
	}
	services := o.serviceCIDRs(snap, host)
	env.serviceCIDRs = services.known
	for _, family := range []plan.Family{plan.IPv4, plan.IPv6} {
		if !o.serves(family, out.HostAddrs) {
			continue
		}
		env.families = append(env.families, family)
		own, primary := o.nodeAddrs(family, node, host)
		env.nodeAddrs = append(env.nodeAddrs, own...)
		ports := o.nodePortAddrs(family, primary, out.HostAddrs)
		out.NodePortAddrs = append(out.NodePortAddrs, ports...)
		env.notePortless(o, family, ports)
		out.Uplinks = append(out.Uplinks, env.uplinks(o, family, own, host)...)
		if lo := loopback(family); o.NodePorts.loopback(family) && slices.Contains(out.HostAddrs, lo) {
			out.LoopbackAddrs = append(out.LoopbackAddrs, lo)
		}
		podsOfFamily := plan.Minimal(plan.OfFamily(pods, family))
		out.PodSources = append(out.PodSources, podsOfFamily...)
		out.ServiceCIDRs = append(out.ServiceCIDRs, plan.Minimal(plan.OfFamily(services.drop, family))...)
		if len(podsOfFamily) > 0 || len(out.PodInterfaces) > 0 {
			env.detect = append(env.detect, family)
		}
	}
	env.nodeAddrs = sortAddrs(env.nodeAddrs)
	env.held = sortAddrs(append(env.held, env.nodeAddrs...))
	env.real = sortAddrs(append(env.real, env.nodeAddrs...))
	env.apiPorts = env.serverPorts(snap)
	return env, out, services.problems
}

// serverPorts returns the ports of the API servers, if one of them is on this host.
func (e *environment) serverPorts(snap *tracker.Snapshot) []uint16 {
	if slices.ContainsFunc(snap.APIServers, func(a netip.Addr) bool { return a.IsLoopback() || hasAddr(e.held, a) }) {
		return snap.APIPorts
	}
	return nil
}

// takeAddrs sets what is held and real of the host's addresses, and gives all of them.
func (e *environment) takeAddrs(host *nodeinfo.Host) []netip.Addr {
	var all []netip.Addr
	for _, a := range host.Addrs {
		all = append(all, a.Addr)
		if a.Addr.IsLinkLocalUnicast() {
			continue
		}
		e.held = append(e.held, a.Addr)
		if !a.Dummy || a.Primary {
			e.real = append(e.real, a.Addr)
		}
	}
	return sortAddrs(all)
}

// serves reports whether the family is wanted; hostAddrs may be of either.
func (o *Options) serves(family plan.Family, hostAddrs []netip.Addr) bool {
	if len(o.Families) > 0 {
		return slices.Contains(o.Families, family)
	}
	return len(addrsOfFamily(hostAddrs, family)) > 0
}

// nodeAddrs gives the host's own addresses of a family, and the one that "primary" stands for; invalid
// when it cannot be told.
func (o *Options) nodeAddrs(family plan.Family, node *source.Node, host *nodeinfo.Host) (own []netip.Addr, primary netip.Addr) {
	var byRoute []netip.Addr
	for _, a := range host.Addrs {
		if a.Primary && plan.FamilyOf(a.Addr) == family {
			byRoute = append(byRoute, a.Addr)
		}
	}
	onHost := func(own []netip.Addr) netip.Addr {
		for _, a := range own {
			if slices.ContainsFunc(host.Addrs, func(h nodeinfo.Addr) bool { return h.Addr == a }) {
				return a
			}
		}
		return netip.Addr{}
	}
	if own = addrsOfFamily(o.NodeAddresses, family); len(own) > 0 {
		return own, onHost(own)
	}
	own = addrsOfFamily(node.Addresses, family)
	// The Node object may be behind the host: then the host is right.
	if primary = onHost(own); !primary.IsValid() {
		primary = onHost(byRoute)
	}
	if len(own) == 0 {
		own = byRoute
	}
	return own, primary
}

// nodePortAddrs resolves Options.NodePorts in one family; the result is sorted.
func (o *Options) nodePortAddrs(family plan.Family, primary netip.Addr, hostAddrs []netip.Addr) (out []netip.Addr) {
	for _, a := range addrsOfFamily(hostAddrs, family) {
		if a.IsLoopback() {
			continue
		}
		if o.NodePorts.Primary && a == primary || contains(o.NodePorts.Prefixes, a) {
			out = append(out, a)
		}
	}
	return out
}

// loopback reports whether NodePorts are wanted on the loopback address of a family.
func (n *NodePortAddresses) loopback(family plan.Family) bool {
	return n.Localhost || slices.ContainsFunc(n.Prefixes, func(p netip.Prefix) bool {
		return plan.FamilyOf(p.Addr()) == family && p.Addr().IsLoopback() && p.Bits() >= loopbackBits(family)
	})
}

// loopback gives the one loopback address that NodePorts can have in a family.
func loopback(family plan.Family) netip.Addr {
	if family == plan.IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// loopbackBits gives the length of the prefix of all loopback addresses.
func loopbackBits(family plan.Family) int {
	if family == plan.IPv4 {
		return 8
	}
	return 128
}

// sameSurroundings reports whether two snapshots agree in what surroundings takes from them.
func sameSurroundings(a, b *tracker.Snapshot) bool {
	return a.Node == b.Node && slices.Equal(a.ServiceCIDRs, b.ServiceCIDRs) &&
		slices.Equal(a.APIServers, b.APIServers) && slices.Equal(a.APIPorts, b.APIPorts)
}
