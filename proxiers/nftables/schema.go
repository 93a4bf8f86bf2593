package nftables

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
)

// The constants are the SetIDs of the fixed sets and maps.
const (
	services nfttable.SetID = iota
	nodePorts
	endpointsTCP
	endpointsUDP
	endpointsSCTP
	nodePortEndpointsTCP
	nodePortEndpointsUDP
	nodePortEndpointsSCTP
	learn
	learnNodePorts
	allowed
	nodePortAllowed
	hairpin
	clusterIPs
	nodePortAddrs
	loopbackAddrs
	classes
	// FirstOwnSet is the SetID of Options.Sets[0].
	FirstOwnSet
)

const (
	podSources = "pod-sources"
	// idleTimeout is the time after which Maintain deletes an unused chain or map. A Service often needs its old class
	// again within a minute.
	idleTimeout = time.Minute
)

// Options holds the settings that differ between the backends that use nftables.
type Options struct {
	Table string
	// Destination returns the destination of connections to a pool. If Destination is nil, the rules send connections
	// to one of the pool's endpoints.
	Destination func(svc *plan.ServicePort, pool plan.Pool) netip.AddrPort
	// MasqueradeStatement is an nft statement that, together with the mark, causes a later rule to masquerade a packet.
	// MasqueradeRule is the rule that masquerades packets to which an earlier rule applied MasqueradeStatement.
	// MasqueradeStatement and MasqueradeRule are empty if the mark alone is enough.
	MasqueradeStatement, MasqueradeRule string
	// LearnChains holds chains that jump to the learn chain. The chains process a new connection after the rules or
	// IPVS have chosen its endpoint.
	LearnChains []nfttable.Chain
	// Sets and Chains are the backend's additional sets and chains. FirstOwnSet is the SetID of Sets[0].
	Sets   []nfttable.Set
	Chains []nfttable.Chain
	// CountConnections reports whether the tables contain sets that count the new connections to each frontend.
	CountConnections bool
	// AddService adds the objects and elements that the backend needs for a ServicePort. AddService may be nil.
	AddService func(n *nfttable.Needs, svc *plan.ServicePort)
}

// LearnRule is the rule for the chains in Options.LearnChains.
const LearnRule = "ct state new jump learn"

// Schema returns the schema of a backend's tables.
func Schema(o Options) nfttable.Schema {
	var counters []string
	for _, proto := range plan.NotRelayedProtocols() {
		counters = append(counters, loopbackCounter(proto))
	}
	return nfttable.Schema{
		Table: o.Table, Sets: slices.Concat(sets(), o.Sets, o.countSets()), Numbers: classes,
		Chains: slices.Concat(o.chains(), o.LearnChains, o.Chains), Counters: counters, IdleTimeout: idleTimeout,
		Ranges: []nfttable.Range{
			{Name: podSources, Prefixes: func(n *plan.Node) []netip.Prefix { return n.PodSources }},
			{
				Name: "service-cidrs", Prefixes: func(n *plan.Node) []netip.Prefix { return n.ServiceCIDRs },
				FillLast: true,
			},
		},
		AddService: o.serviceNeeds, NodeEntries: nodeEntries,
		SameRules: func(a, b *plan.Node) bool { return slices.Equal(a.PodInterfaces, b.PodInterfaces) },
	}
}

// BaseChain returns a base chain that applies the rules to the packets at a hook.
func BaseChain(name string, hook knftables.BaseChainHook, priority knftables.BaseChainPriority,
	rules ...string,
) nfttable.Chain {
	return nfttable.Chain{Name: name, Type: knftables.FilterType, Hook: hook, Priority: priority, Rules: rules}
}

func sets() []nfttable.Set {
	frontend := []nfttable.Field{nfttable.Addr, nfttable.Proto, nfttable.Port}
	with := func(key []nfttable.Field, more ...nfttable.Field) []nfttable.Field { return slices.Concat(key, more) }
	slots := []nfttable.Field{nfttable.Addr, nfttable.Port, nfttable.Slot}
	addr := []nfttable.Field{nfttable.Addr}
	// A NodePort's key is frontend[1:], which has no address.
	return []nfttable.Set{
		services:              {Name: "services", Key: frontend, Data: nfttable.ToNumber, Named: true, LeadsToLookup: true},
		nodePorts:             {Name: "nodeports", Key: frontend[1:], Data: nfttable.ToNumber, Named: true, LeadsToLookup: true},
		endpointsTCP:          {Name: "endpoints-tcp", Key: slots, Data: nfttable.ToEndpoint, Proto: plan.TCP},
		endpointsUDP:          {Name: "endpoints-udp", Key: slots, Data: nfttable.ToEndpoint, Proto: plan.UDP},
		endpointsSCTP:         {Name: "endpoints-sctp", Key: slots, Data: nfttable.ToEndpoint, Proto: plan.SCTP},
		nodePortEndpointsTCP:  {Name: "nodeport-endpoints-tcp", Key: slots[1:], Data: nfttable.ToEndpoint, Proto: plan.TCP},
		nodePortEndpointsUDP:  {Name: "nodeport-endpoints-udp", Key: slots[1:], Data: nfttable.ToEndpoint, Proto: plan.UDP},
		nodePortEndpointsSCTP: {Name: "nodeport-endpoints-sctp", Key: slots[1:], Data: nfttable.ToEndpoint, Proto: plan.SCTP},
		learn:                 {Name: "learn", Key: with(frontend, nfttable.Peer, nfttable.PeerPort), Data: nfttable.ToChain},
		learnNodePorts:        {Name: "learn-nodeports", Key: with(frontend[1:], nfttable.Peer, nfttable.PeerPort), Data: nfttable.ToChain},
		allowed:               {Name: "allowed", Key: with(frontend, nfttable.PeerPrefix)},
		nodePortAllowed:       {Name: "nodeport-allowed", Key: with(frontend[1:], nfttable.PeerPrefix)},
		hairpin:               {Name: "hairpin", Key: with([]nfttable.Field{nfttable.Peer}, frontend...)},
		clusterIPs:            {Name: "cluster-ips", Key: addr, LeadsToLookup: true},
		nodePortAddrs:         {Name: "nodeport-addresses", Key: addr},
		loopbackAddrs:         {Name: "loopback-addresses", Key: addr},
		classes:               {Name: "classes", Key: []nfttable.Field{nfttable.Number}, Data: nfttable.ToChain},
	}
}

// endpointSet returns the SetID of the map that holds a frontend's endpoints. Each protocol has its own map, because
// nft 1.0.6 accepts "tcp dport" as a key but rejects "th dport" in a map that it has read from the kernel ("conflicting
// protocols specified: tcp vs. th").
func endpointSet(p plan.Protocol, nodePort bool) nfttable.SetID {
	set := endpointsTCP
	switch p {
	case plan.UDP:
		set = endpointsUDP
	case plan.SCTP:
		set = endpointsSCTP
	}
	if nodePort {
		set += nodePortEndpointsTCP - endpointsTCP
	}
	return set
}

func (o Options) chains() []nfttable.Chain {
	const nat, dnat = knftables.NATType, knftables.DNATPriority
	toService := []string{"meta priority set $ip daddr . meta l4proto . th dport map @services meta priority vmap @classes"}
	toNodePort := []string{"$ip daddr @nodeport-addresses meta priority set meta l4proto . th dport map @nodeports meta priority vmap @classes"}
	if o.CountConnections {
		toService = slices.Insert(toService, 0, countService)
		toNodePort = slices.Insert(toNodePort, 0, countNodePort)
	}
	return []nfttable.Chain{
		{Name: "services", Rules: slices.Concat(toService, toNodePort, []string{
			"$ip daddr @loopback-addresses goto loopback",
			"$ip daddr @cluster-ips " + plan.UnusedPortVerdict.String(),
			"$ip daddr @service-cidrs fib daddr type != local " + plan.UnallocatedVerdict.String(),
		})},
		{Name: "loopback", Rules: loopbackRules()},
		{Name: "learn", Rules: []string{
			"meta l4proto { tcp, udp, sctp } ct original $ip daddr . meta l4proto . ct original proto-dst . $ip daddr . th dport vmap @learn",
			"meta l4proto { tcp, udp, sctp } ct original $ip daddr @nodeport-addresses meta l4proto . ct original proto-dst . $ip daddr . th dport vmap @learn-nodeports",
		}},
		{Name: "nat-prerouting", Type: nat, Hook: knftables.PreroutingHook, Priority: dnat, Rules: []string{"jump services"}},
		{Name: "nat-output", Type: nat, Hook: knftables.OutputHook, Priority: dnat, Rules: []string{
			// The comment on proxiers.OwnMark explains why the rules accept the daemon's packets.
			"meta mark and $own != 0 accept",
			"jump services",
		}},
		{
			Name: "nat-postrouting", Type: nat, Hook: knftables.PostroutingHook, Priority: knftables.SNATPriority,
			Rules: append(o.masquerade(),
				"meta mark and $mark != 0 meta mark set meta mark and $rest masquerade fully-random",
				"ct status dnat $ip saddr . $ip daddr . meta l4proto . th dport @hairpin masquerade fully-random",
			),
		},
	}
}

func (o Options) masquerade() []string {
	if o.MasqueradeRule == "" {
		return nil
	}
	return []string{o.MasqueradeRule}
}

// loopbackRules returns the rules that count and reject packets to loopback NodePorts whose protocol Edgeway does not
// relay. The rules look up @nodeports only to test whether an element exists, because kernels before 6.11 have no other
// existence test for maps.
func loopbackRules() (rules []string) {
	for _, proto := range plan.NotRelayedProtocols() {
		rules = append(rules,
			fmt.Sprintf("meta l4proto %s meta priority set meta l4proto . th dport map @nodeports counter name %s %s",
				nfttable.ProtoName(proto), loopbackCounter(proto), plan.NotRelayedVerdict))
	}
	return rules
}

func loopbackCounter(p plan.Protocol) string { return "loopback-rejected-" + nfttable.ProtoName(p) }
