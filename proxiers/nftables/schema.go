package nftables

import (
	"fmt"
	"slices"
	"strings"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers/plan"
)

// tableName is the name of our table in each family.
const tableName = "edgeway"

// The interval sets, whose few elements are always written together.
const (
	podSources   = "pod-sources"
	serviceCIDRs = "service-cidrs"
)

// clientsPerMap bounds a map of session affinity; with more clients, the surplus goes to random endpoints.
const clientsPerMap = 1 << 16

// renderer turns plans into transactions. It knows the options and the host, but not the kernel's state.
type renderer struct {
	nft            knftables.Interface
	table          string
	families       []plan.Family
	masqueradeMark uint32
	// podInterfaces is written into rules: a plan that changes it needs all rules anew.
	podInterfaces []string
}

func (r *renderer) serves(f plan.Family) bool { return slices.Contains(r.families, f) }

// addSchema adds what exists whether there are Services or not, except for rules.
func (r *renderer) addSchema(tx *knftables.Transaction, f plan.Family) {
	nf := nftFamily(f)
	tx.Add(&knftables.Table{Family: nf, Name: r.table})
	for id := range specs {
		spec := &specs[id]
		if spec.data == noData {
			set := &knftables.Set{Family: nf, Table: r.table, Name: spec.name, Type: spec.typ(f)}
			if spec.has(fieldPeerPrefix) {
				set.Flags = []knftables.SetFlag{knftables.IntervalFlag}
			}
			tx.Add(set)
			continue
		}
		tx.Add(r.fixedMap(f, spec))
	}
	for _, name := range []string{podSources, serviceCIDRs} {
		tx.Add(&knftables.Set{Family: nf, Table: r.table, Name: name, Type: addrType(f), Flags: []knftables.SetFlag{knftables.IntervalFlag}})
	}
	for _, proto := range rejectedOnLoopback {
		tx.Add(&knftables.Counter{Family: nf, Table: r.table, Name: loopbackCounter(proto)})
	}
	for i := range fixedChains {
		tx.Add(fixedChains[i].object(r.table, f))
	}
}

func (r *renderer) fixedMap(f plan.Family, spec *setSpec) *knftables.Map {
	m := &knftables.Map{Family: nftFamily(f), Table: r.table, Name: spec.name}
	if spec.has(fieldSlot) {
		m.TypeOf = spec.typeOf(f)
	} else {
		m.Type = spec.typ(f)
	}
	return m
}

// typ gives the set's type in nft's syntax.
func (s *setSpec) typ(f plan.Family) string {
	var parts []string
	for _, k := range s.key {
		switch k {
		case fieldAddr, fieldPeer, fieldPeerPrefix:
			parts = append(parts, addrType(f))
		case fieldProto:
			parts = append(parts, "inet_proto")
		case fieldPort, fieldPeerPort:
			parts = append(parts, "inet_service")
		case fieldClass:
			parts = append(parts, "classid")
		}
	}
	t := strings.Join(parts, " . ")
	switch s.data {
	case verdictData:
		t += " : verdict"
	case classData:
		t += " : classid"
	}
	return t
}

// typeOf is typ by expressions, because a slot number has no type name in nft.
func (s *setSpec) typeOf(f plan.Family) string {
	ip, port := ipKeyword(f), protoName(s.proto)+" dport"
	var parts []string
	for _, k := range s.key {
		switch k {
		case fieldAddr:
			parts = append(parts, ip+" daddr")
		case fieldPort:
			parts = append(parts, port)
		case fieldSlot:
			parts = append(parts, "numgen random mod 65536") // any modulus: the key has 32 bits
		}
	}
	return fmt.Sprintf("%s : %s daddr . %s", strings.Join(parts, " . "), ip, port)
}

// fixedChain is a chain that always exists. Its rules are templates: IP stands for ip or ip6, MARK for
// the masquerade mark and REST for its complement.
type fixedChain struct {
	name     string
	kind     knftables.BaseChainType
	hook     knftables.BaseChainHook
	priority knftables.BaseChainPriority
	rules    []string
}

var fixedChains = []fixedChain{
	{
		name: "services",
		rules: []string{
			"meta priority set IP daddr . meta l4proto . th dport map @services meta priority vmap @classes",
			"IP daddr @nodeport-addresses meta priority set meta l4proto . th dport map @nodeports meta priority vmap @classes",
			"IP daddr @loopback-addresses goto loopback",
			"IP daddr @cluster-ips reject",
			"IP daddr @service-cidrs fib daddr type != local drop",
		},
	},
	{
		// The lookups in @nodeports are only for whether there is something: kernels before 6.11 know no other
		// way to ask a map that.
		name: "loopback",
		rules: []string{
			"meta l4proto udp meta priority set meta l4proto . th dport map @nodeports counter name loopback-rejected-udp reject",
			"meta l4proto sctp meta priority set meta l4proto . th dport map @nodeports counter name loopback-rejected-sctp reject",
		},
	},
	{
		name: "learn",
		rules: []string{
			"meta l4proto { tcp, udp, sctp } ct original IP daddr . meta l4proto . ct original proto-dst . IP daddr . th dport vmap @learn",
			"meta l4proto { tcp, udp, sctp } ct original IP daddr @nodeport-addresses meta l4proto . ct original proto-dst . IP daddr . th dport vmap @learn-nodeports",
		},
	},
	{"nat-prerouting", knftables.NATType, knftables.PreroutingHook, knftables.DNATPriority, []string{"jump services"}},
	{"nat-output", knftables.NATType, knftables.OutputHook, knftables.DNATPriority, []string{"jump services"}},
	{
		"nat-postrouting", knftables.NATType, knftables.PostroutingHook, knftables.SNATPriority,
		[]string{
			"meta mark and MARK != 0 meta mark set meta mark and REST masquerade fully-random",
			"ct status dnat IP saddr . IP daddr . meta l4proto . th dport @hairpin masquerade fully-random",
		},
	},
	{"learn-prerouting", knftables.FilterType, knftables.PreroutingHook, knftables.DNATPriority + "+10", []string{"ct state new jump learn"}},
	{"learn-output", knftables.FilterType, knftables.OutputHook, knftables.DNATPriority + "+10", []string{"ct state new jump learn"}},
}

func (c *fixedChain) object(table string, f plan.Family) *knftables.Chain {
	chain := &knftables.Chain{Family: nftFamily(f), Table: table, Name: c.name}
	if c.hook != "" {
		chain.Type, chain.Hook, chain.Priority = &c.kind, &c.hook, &c.priority
		chain.Policy = knftables.PtrTo(knftables.AcceptPolicy) // someone may have changed it
	}
	return chain
}

// fixedRules gives the rules of a fixed chain.
func (r *renderer) fixedRules(c *fixedChain, f plan.Family) []string {
	replace := strings.NewReplacer("IP", ipKeyword(f),
		"MARK", fmt.Sprintf("0x%08x", r.masqueradeMark), "REST", fmt.Sprintf("0x%08x", ^r.masqueradeMark))
	rules := make([]string, len(c.rules))
	for i, rule := range c.rules {
		rules[i] = replace.Replace(rule)
	}
	return rules
}

func nftFamily(f plan.Family) knftables.Family {
	if f == plan.IPv4 {
		return knftables.IPv4Family
	}
	return knftables.IPv6Family
}

func addrType(f plan.Family) string {
	if f == plan.IPv4 {
		return "ipv4_addr"
	}
	return "ipv6_addr"
}
