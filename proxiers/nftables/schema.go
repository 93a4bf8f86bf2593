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

// The fixed sets and maps.
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
	// OwnSets is the first of Options.Sets.
	OwnSets
)

const (
	podSources = "pod-sources"
	// idleFor is how long an unused chain or map is kept: a class that a Service leaves is often needed again soon.
	idleFor = time.Minute
)

// Options hold what backends differ in.
type Options struct {
	// Table is the name of the tables.
	Table string
	// To returns the address that connections to a pool are sent to. If it is nil, they are sent to one of the pool's
	// endpoints.
	To func(svc *plan.ServicePort, pool plan.Pool) netip.AddrPort
	// Remember is a statement that has a packet masqueraded, in addition to its mark, and Masquerade the rule that does
	// it. Both are "" if the mark alone does.
	Remember, Masquerade string
	// Learn are the hooks at which the endpoint of a new connection is known, as chains: they jump to LearnChain.
	Learn []nfttable.Chain
	// Sets and Chains are the backend's own. The SetID of the first of the Sets is OwnSets.
	Sets   []nfttable.Set
	Chains []nfttable.Chain
	// Service adds what else a ServicePort needs. It may be nil.
	Service func(n *nfttable.Needs, svc *plan.ServicePort)
}

// LearnNew is the rule of Options.Learn.
const LearnNew = "ct state new jump learn"

// Schema describes tables with the path of a new connection.
func Schema(o Options) nfttable.Schema {
	var counters []string
	for _, proto := range plan.NotRelayedProtocols() {
		counters = append(counters, loopbackCounter(proto))
	}
	return nfttable.Schema{
		Table: o.Table, Sets: append(sets(), o.Sets...), Numbers: classes,
		Chains: slices.Concat(o.chains(), o.Learn, o.Chains), Counters: counters, Idle: idleFor,
		Ranges: []nfttable.Range{
			{Name: podSources, Of: func(n *plan.Node) []netip.Prefix { return n.PodSources }},
			{Name: "service-cidrs", Of: func(n *plan.Node) []netip.Prefix { return n.ServiceCIDRs }, Last: true},
		},
		Service: o.serviceNeeds, Node: nodeEntries,
		SameRules: func(a, b *plan.Node) bool { return slices.Equal(a.PodInterfaces, b.PodInterfaces) },
	}
}

// Hooked returns a chain of rules for packets that pass a hook.
func Hooked(name string, hook knftables.BaseChainHook, priority knftables.BaseChainPriority,
	rules ...string,
) nfttable.Chain {
	return nfttable.Chain{Name: name, Type: knftables.FilterType, Hook: hook, Priority: priority, Rules: rules}
}

func sets() []nfttable.Set {
	frontend := []nfttable.Field{nfttable.Addr, nfttable.Proto, nfttable.Port}
	with := func(key []nfttable.Field, more ...nfttable.Field) []nfttable.Field { return slices.Concat(key, more) }
	slots := []nfttable.Field{nfttable.Addr, nfttable.Port, nfttable.Slot}
	addr := []nfttable.Field{nfttable.Addr}
	// What is found by a NodePort has the same key without the address.
	return []nfttable.Set{
		services:              {Name: "services", Key: frontend, Data: nfttable.ToNumber, Named: true, Leads: true},
		nodePorts:             {Name: "nodeports", Key: frontend[1:], Data: nfttable.ToNumber, Named: true, Leads: true},
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
		clusterIPs:            {Name: "cluster-ips", Key: addr, Leads: true},
		nodePortAddrs:         {Name: "nodeport-addresses", Key: addr},
		loopbackAddrs:         {Name: "loopback-addresses", Key: addr},
		classes:               {Name: "classes", Key: []nfttable.Field{nfttable.Number}, Data: nfttable.ToChain},
	}
}

// endpointSet returns the map of the endpoints of a frontend. There is one for each protocol because nft
// 1.0.6, when it gets a map with "th dport" from the kernel, refuses it in a rule ("conflicting protocols
// specified: tcp vs. th"); with "tcp dport" it does not.
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
	return []nfttable.Chain{
		{Name: "services", Rules: []string{
			"meta priority set $ip daddr . meta l4proto . th dport map @services meta priority vmap @classes",
			"$ip daddr @nodeport-addresses meta priority set meta l4proto . th dport map @nodeports meta priority vmap @classes",
			"$ip daddr @loopback-addresses goto loopback",
			"$ip daddr @cluster-ips " + plan.OtherPort.String(),
			"$ip daddr @service-cidrs fib daddr type != local " + plan.Unallocated.String(),
		}},
		{Name: "loopback", Rules: loopbackRules()},
		{Name: "learn", Rules: []string{
			"meta l4proto { tcp, udp, sctp } ct original $ip daddr . meta l4proto . ct original proto-dst . $ip daddr . th dport vmap @learn",
			"meta l4proto { tcp, udp, sctp } ct original $ip daddr @nodeport-addresses meta l4proto . ct original proto-dst . $ip daddr . th dport vmap @learn-nodeports",
		}},
		{Name: "nat-prerouting", Type: nat, Hook: knftables.PreroutingHook, Priority: dnat, Rules: []string{"jump services"}},
		{Name: "nat-output", Type: nat, Hook: knftables.OutputHook, Priority: dnat, Rules: []string{
			// The daemon's own connections; see proxiers.OwnMark.
			"meta mark and $own != 0 accept",
			"jump services",
		}},
		{Name: "nat-postrouting", Type: nat, Hook: knftables.PostroutingHook, Priority: knftables.SNATPriority, Rules: append(o.masquerade(),
			"meta mark and $mark != 0 meta mark set meta mark and $rest masquerade fully-random",
			"ct status dnat $ip saddr . $ip daddr . meta l4proto . th dport @hairpin masquerade fully-random",
		)},
	}
}

// masquerade returns Options.Masquerade, if there is one.
func (o Options) masquerade() []string {
	if o.Masquerade == "" {
		return nil
	}
	return []string{o.Masquerade}
}

// loopbackRules reject and count packets to NodePorts on loopback that are not relayed. The lookups in @nodeports
// only test whether there is an element: kernels before 6.11 cannot ask a map that in another way.
func loopbackRules() (rules []string) {
	for _, proto := range plan.NotRelayedProtocols() {
		rules = append(rules,
			fmt.Sprintf("meta l4proto %s meta priority set meta l4proto . th dport map @nodeports counter name %s %s",
				nfttable.ProtoName(proto), loopbackCounter(proto), plan.NotRelayed))
	}
	return rules
}

func loopbackCounter(p plan.Protocol) string { return "loopback-rejected-" + nfttable.ProtoName(p) }

// Check returns an error if rules cannot be made for a host: they contain its names of interfaces unchanged.
func Check(n *plan.Node) error {
	for _, name := range n.PodInterfaces {
		if err := plan.CheckInterface(name); err != nil {
			return err
		}
	}
	return nil
}
