package nfttable

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers/plan"
)

// Schema says what the tables hold. Rules are templates in nft's syntax: $ip stands for ip or ip6, $mark for the
// masquerade mark and $rest for its complement.
type Schema struct {
	// Table is the name of the tables.
	Table string
	// Sets are the fixed sets and maps whose elements are written one by one. A SetID is an index.
	Sets []Set
	// Numbers is the map from numbers to chains.
	Numbers SetID
	// Ranges are the interval sets, whose few elements are always written together.
	Ranges []Range
	// Counters are the names of counters.
	Counters []string
	// Chains always exist.
	Chains []Chain
	// Chunk is the number of elements from which a transaction is sent before more is added; 0: 10,000.
	Chunk int
	// Idle is how long an object is kept that nothing needs.
	Idle time.Duration

	// Service says what a ServicePort needs.
	Service func(n *Needs, svc *plan.ServicePort)
	// Node gives the elements that follow from the host. Those of a family without a table are left out.
	Node func(n *plan.Node) []Entry
	// SameRules says that rules for one host are those for the other, which is then no reason for a full sync.
	SameRules func(a, b *plan.Node) bool
}

// SetID names one of Schema.Sets.
type SetID uint8

// Set describes the elements of a set or map.
type Set struct {
	Name string
	Key  []Field
	Data Data
	// Proto is set where the key has none because the set is for one protocol.
	Proto plan.Protocol
	// Named says that each element has the name of its ServicePort as a comment.
	Named bool
	// Leads says that its elements send packets on to those of other sets. A change that takes several transactions
	// adds them after those, and deletes them before.
	Leads bool
}

// Field is one part of an element's key.
type Field uint8

// The fields of an Element.
const (
	Addr Field = iota
	Proto
	Port
	Slot
	Peer
	PeerPort
	PeerPrefix
	Number
)

// Data is what a map's elements lead to.
type Data uint8

// A set has none, and a map a chain (by goto), an address and port, or the number of a chain.
const (
	NoData Data = iota
	ToChain
	ToEndpoint
	ToNumber
)

// Range is a set of prefixes.
type Range struct {
	Name string
	// Of gives the prefixes of both families, as plan.Minimal does.
	Of func(n *plan.Node) []netip.Prefix
	// Last says that the set takes packets from others, and is filled with the last chunk of a takeover.
	Last bool
}

// Chain is a fixed chain; without a hook, others jump to it.
type Chain struct {
	Name     string
	Type     knftables.BaseChainType
	Hook     knftables.BaseChainHook
	Priority knftables.BaseChainPriority
	Rules    []string
}

// has reports whether the key has the field.
func (s *Set) has(f Field) bool { return slices.Contains(s.Key, f) }

// typ gives the set's type in nft's syntax.
func (s *Set) typ(f plan.Family) string {
	var parts []string
	for _, k := range s.Key {
		switch k {
		case Addr, Peer, PeerPrefix:
			parts = append(parts, addrType(f))
		case Proto:
			parts = append(parts, "inet_proto")
		case Port, PeerPort:
			parts = append(parts, "inet_service")
		case Number:
			parts = append(parts, "classid")
		}
	}
	t := strings.Join(parts, " . ")
	switch s.Data {
	case ToChain:
		t += " : verdict"
	case ToNumber:
		t += " : classid"
	}
	return t
}

// typeOf is typ by expressions, because a slot number has no type name in nft.
func (s *Set) typeOf(f plan.Family) string {
	ip, port := ipKeyword(f), ProtoName(s.Proto)+" dport"
	var parts []string
	for _, k := range s.Key {
		switch k {
		case Addr:
			parts = append(parts, ip+" daddr")
		case Port:
			parts = append(parts, port)
		case Slot:
			parts = append(parts, "numgen random mod 65536") // any modulus: the key has 32 bits
		}
	}
	return fmt.Sprintf("%s : %s daddr . %s", strings.Join(parts, " . "), ip, port)
}

// add adds the set or map to a transaction.
func (s *Set) add(tx *knftables.Transaction, table string, f plan.Family) {
	if s.Data == NoData {
		set := &knftables.Set{Family: nftFamily(f), Table: table, Name: s.Name, Type: s.typ(f)}
		if s.has(PeerPrefix) {
			set.Flags = []knftables.SetFlag{knftables.IntervalFlag}
		}
		tx.Add(set)
		return
	}
	m := &knftables.Map{Family: nftFamily(f), Table: table, Name: s.Name}
	if s.has(Slot) {
		m.TypeOf = s.typeOf(f)
	} else {
		m.Type = s.typ(f)
	}
	tx.Add(m)
}

func (c *Chain) add(tx *knftables.Transaction, table string, f plan.Family) {
	chain := &knftables.Chain{Family: nftFamily(f), Table: table, Name: c.Name}
	if c.Hook != "" {
		chain.Type, chain.Hook, chain.Priority = &c.Type, &c.Hook, &c.Priority
		chain.Policy = knftables.PtrTo(knftables.AcceptPolicy) // someone may have changed it
	}
	tx.Add(chain)
}

func nftFamily(f plan.Family) knftables.Family { return knftables.Family(ipKeyword(f)) }

func ipKeyword(f plan.Family) string {
	if f == plan.IPv4 {
		return "ip"
	}
	return "ip6"
}

func addrType(f plan.Family) string {
	if f == plan.IPv4 {
		return "ipv4_addr"
	}
	return "ipv6_addr"
}

// familyIndex is for what is held by family.
func familyIndex(f plan.Family) int {
	if f == plan.IPv4 {
		return 0
	}
	return 1
}
