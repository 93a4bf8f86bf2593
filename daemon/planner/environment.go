package planner

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// environment holds everything that determines a Service's plan, except the options and the Service itself. When the
// environment changes, the Planner plans every Service again. The environment therefore excludes the host's link-local
// addresses, which change with every pod.
type environment struct {
	families       []plan.Family
	detectFamilies []plan.Family // families in which Edgeway can distinguish pods from other sources
	nodeName       string
	zone           string
	// localAsCluster reports whether node.local_policy is "cluster" and the host has no Node object.
	localAsCluster bool
	// nodeAddrs holds the host's node addresses in sorted order. In each family, the node addresses come from the first
	// of these sources that has any: the options, the Node object, the default route.
	nodeAddrs []netip.Addr
	// hostAddrs holds the host's addresses and nodeAddrs. realAddrs excludes the addresses that only dummy devices
	// have. hostAddrs and realAddrs are sorted.
	hostAddrs, realAddrs []netip.Addr
	// apiServers comes from the snapshot. gateways, broadcasts and nameServers come from the host. gateways excludes
	// link-local addresses.
	apiServers, gateways, broadcasts, nameServers []netip.Addr
	// apiPorts holds the API servers' ports if an API server is on this host.
	apiPorts     []uint16
	serviceCIDRs []netip.Prefix
	// denyHost reports whether the Planner refuses endpoints at hostAddrs.
	denyHost bool
	// guessedFamilies holds the families in which Edgeway's routes determine the source address of the host's
	// connections to ClusterIPs. The kernel chooses the source address before Edgeway chooses the endpoint.
	guessedFamilies []plan.Family
	// portlessFamilies holds the families in which "primary" selects no address although the host has an address.
	portlessFamilies []portlessFamily
	// problems lists the faults in the ClusterIP ranges.
	problems []fault.Fault
}

func (e *environment) equal(o *environment) bool { return reflect.DeepEqual(e, o) }

func (e *environment) serves(f plan.Family) bool  { return slices.Contains(e.families, f) }
func (e *environment) detects(f plan.Family) bool { return slices.Contains(e.detectFamilies, f) }

func (o *Options) environment(snap *tracker.Snapshot, host *nodeinfo.Host) (*environment, *plan.Node) {
	node := snap.Node
	env := &environment{
		localAsCluster: o.Node.LocalPolicy == config.LocalCluster && node == nil,
		denyHost:       o.Proxy.DenyEndpoints.Host && node == nil,
		apiServers:     snap.APIServers, broadcasts: host.Broadcasts, nameServers: host.NameServers,
	}
	for _, a := range host.Gateways {
		if !a.IsLinkLocalUnicast() { // no Service may have a link-local address, and IPv6 routers have many
			env.gateways = append(env.gateways, a)
		}
	}
	if node == nil {
		node = &source.Node{}
	}
	env.nodeName, env.zone = cmp.Or(o.Node.Name, node.Name), cmp.Or(o.Node.Zone, node.Zone)
	pods, interfaces := o.pods(node)
	out := &plan.Node{Name: env.nodeName, HostAddrs: env.setAddrs(host), PodInterfaces: interfaces}
	services := serviceCIDRs{host: host, apiServers: snap.APIServers}
	services.addSetting(o.Proxy.ServiceCIDRs)
	services.addObjects(snap.ServiceCIDRs)
	env.serviceCIDRs, env.problems = services.knownRanges, services.problems
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
		if lo := loopback(family); o.allowsLoopback(family) && slices.Contains(out.HostAddrs, lo) {
			out.LoopbackAddrs = append(out.LoopbackAddrs, lo)
		}
		podsOfFamily := plan.NormalizePrefixes(plan.FilterByFamily(pods, family))
		out.PodSources = append(out.PodSources, podsOfFamily...)
		out.ServiceCIDRs = append(out.ServiceCIDRs,
			plan.NormalizePrefixes(plan.FilterByFamily(services.dropRanges, family))...)
		if len(podsOfFamily) > 0 || len(out.PodInterfaces) > 0 {
			env.detectFamilies = append(env.detectFamilies, family)
		}
	}
	env.nodeAddrs = sortAddrs(env.nodeAddrs)
	env.hostAddrs = sortAddrs(append(env.hostAddrs, env.nodeAddrs...))
	env.realAddrs = sortAddrs(append(env.realAddrs, env.nodeAddrs...))
	env.apiPorts = env.serverPorts(snap)
	return env, out
}

// pods returns the ranges and the devices that Edgeway uses to recognize this host's pods. In a family without ranges
// or devices, Edgeway treats no client as a pod. If Edgeway treats no client as a pod, connections to ClusterIPs keep
// their source address, and Edgeway short-circuits no connection.
func (o *Options) pods(node *source.Node) (ranges []netip.Prefix, interfaces []string) {
	switch p := o.Proxy; p.LocalDetection {
	case config.DetectClusterCIDR:
		return p.ClusterCIDRs, nil
	case config.DetectNodeCIDR:
		return node.PodCIDRs, nil
	case config.DetectBridge:
		return nil, []string{p.BridgeInterface}
	case config.DetectPrefix:
		return nil, []string{p.InterfaceNamePrefix + "*"}
	}
	return nil, nil
}

func (e *environment) serverPorts(snap *tracker.Snapshot) []uint16 {
	if slices.ContainsFunc(snap.APIServers,
		func(a netip.Addr) bool { return a.IsLoopback() || hasAddr(e.hostAddrs, a) }) {
		return snap.APIPorts
	}
	return nil
}

// setAddrs sets hostAddrs and realAddrs, and returns all of the host's addresses.
func (e *environment) setAddrs(host *nodeinfo.Host) []netip.Addr {
	var all []netip.Addr
	for _, a := range host.Addrs {
		all = append(all, a.Addr)
		if a.Addr.IsLinkLocalUnicast() {
			continue
		}
		e.hostAddrs = append(e.hostAddrs, a.Addr)
		if !a.Dummy || a.Primary {
			e.realAddrs = append(e.realAddrs, a.Addr)
		}
	}
	return sortAddrs(all)
}

func (o *Options) serves(family plan.Family, hostAddrs []netip.Addr) bool {
	if len(o.Families) > 0 {
		return slices.Contains(o.Families, family)
	}
	return len(addrsOfFamily(hostAddrs, family)) > 0
}

// nodeAddrs returns the host's node addresses in one family, and the address that "primary" in proxy.nodeport_addresses
// selects, or an invalid Addr if "primary" selects no address.
func (o *Options) nodeAddrs(
	family plan.Family, node *source.Node, host *nodeinfo.Host,
) (own []netip.Addr, primary netip.Addr) {
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
	if own = addrsOfFamily(o.Node.Addresses, family); len(own) > 0 {
		return own, onHost(own)
	}
	own = addrsOfFamily(node.Addresses, family)
	// The Node object may be outdated, so primary must be an address of the host.
	if primary = onHost(own); !primary.IsValid() {
		primary = onHost(byRoute)
	}
	if len(own) == 0 {
		own = byRoute
	}
	return own, primary
}

// nodePortAddrs returns, in sorted order, the addresses that proxy.nodeport_addresses selects in one family.
func (o *Options) nodePortAddrs(family plan.Family, primary netip.Addr, hostAddrs []netip.Addr) (out []netip.Addr) {
	n := o.Proxy.NodePortAddresses
	for _, a := range addrsOfFamily(hostAddrs, family) {
		if !a.IsLoopback() && (n.All || n.Primary && a == primary || contains(n.Prefixes, a)) {
			out = append(out, a)
		}
	}
	return out
}

// allowsLoopback reports whether a family's loopback address accepts NodePorts.
func (o *Options) allowsLoopback(family plan.Family) bool {
	n := o.Proxy.NodePortAddresses
	return n.Localhost || slices.ContainsFunc(n.Prefixes, func(p netip.Prefix) bool {
		return plan.FamilyOf(p.Addr()) == family && p.Addr().IsLoopback() && p.Bits() >= loopbackBits(family)
	})
}

func loopback(family plan.Family) netip.Addr {
	if family == plan.IPv4 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.IPv6Loopback()
}

// loopbackBits returns the prefix length of a family's loopback range: 8 for 127.0.0.0/8 and 128 for ::1/128.
func loopbackBits(family plan.Family) int {
	if family == plan.IPv4 {
		return 8
	}
	return 128
}

// sameEnvironment reports whether two snapshots of one host lead to the same environment.
func sameEnvironment(a, b *tracker.Snapshot) bool {
	return a.Node == b.Node && slices.Equal(a.ServiceCIDRs, b.ServiceCIDRs) &&
		slices.Equal(a.APIServers, b.APIServers) && slices.Equal(a.APIPorts, b.APIPorts)
}

// loopbackDevice is the name of the loopback device in every network namespace.
const loopbackDevice = "lo"

// uplinks returns a slice that contains the family's uplink, or nil if the host has no uplink or Options.OwnRoutes is
// false. If no default route determines the source address of connections, uplinks adds the family to guessedFamilies.
func (e *environment) uplinks(o *Options, family plan.Family, own []netip.Addr, host *nodeinfo.Host) []plan.Uplink {
	up, ok := uplink(family, own, host)
	if !ok || !o.OwnRoutes {
		return nil
	}
	chosen := func(a nodeinfo.Addr) bool { return a.Primary && plan.FamilyOf(a.Addr) == family }
	if !slices.ContainsFunc(host.Addrs, chosen) {
		e.guessedFamilies = append(e.guessedFamilies, family)
	}
	return []plan.Uplink{up}
}

// uplink returns the source address and the device for connections that use one of Edgeway's routes. ok is false if the
// host has no usable address or no usable device. own lists the host's node addresses in order of preference. If own
// contains none of the host's addresses, uplink prefers the default route's source address, and uses a dummy device's
// address only as a last resort.
func uplink(family plan.Family, own []netip.Addr, host *nodeinfo.Host) (up plan.Uplink, ok bool) {
	var from, by []nodeinfo.Addr
	for _, a := range host.Addrs {
		if plan.FamilyOf(a.Addr) != family || a.Addr.IsLoopback() || a.Addr.IsLinkLocalUnicast() {
			continue
		}
		from = append(from, a)
		if a.Interface != loopbackDevice {
			by = append(by, a)
		}
	}
	if len(by) == 0 {
		return plan.Uplink{}, false
	}
	source := slices.MinFunc(from, func(a, b nodeinfo.Addr) int {
		byRank := cmp.Compare(rank(own, a.Addr), rank(own, b.Addr))
		return cmp.Or(byRank, compareBools(a.Primary, b.Primary), compareBools(!a.Dummy, !b.Dummy))
	})
	link := slices.MinFunc(by, func(a, b nodeinfo.Addr) int {
		return cmp.Or(compareBools(!a.Dummy, !b.Dummy), compareBools(a.Addr == source.Addr, b.Addr == source.Addr))
	})
	return plan.Uplink{Addr: source.Addr, Interface: link.Interface}, true
}

// rank returns the index of an address in the list, or the list's length if the address is missing.
func rank(list []netip.Addr, a netip.Addr) int {
	if i := slices.Index(list, a); i >= 0 {
		return i
	}
	return len(list)
}

// compareBools orders true before false.
func compareBools(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func addrsOfFamily(addrs []netip.Addr, family plan.Family) (out []netip.Addr) {
	for _, a := range addrs {
		if plan.FamilyOf(a) == family {
			out = append(out, a)
		}
	}
	return out
}

func contains(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

func sortAddrs(addrs []netip.Addr) []netip.Addr {
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs)
}

func hasAddr(sorted []netip.Addr, a netip.Addr) bool {
	_, ok := slices.BinarySearchFunc(sorted, a, netip.Addr.Compare)
	return ok
}
