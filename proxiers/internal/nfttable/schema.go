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

// Schema describes the contents of the tables. Rules are templates in nft's syntax: $ip stands for ip or ip6, $mark
// for the masquerade mark, $rest for its complement and $own for proxiers.OwnMark.
type Schema struct {
	// Table is the name of the tables.
	Table string
	// Sets holds the fixed sets and maps whose elements are written individually. A SetID is an index into Sets.
	Sets []Set
	// Numbers is the map from chain numbers to chains.
	Numbers SetID
	// Ranges holds the interval sets, whose few elements are always written together.
	Ranges []Range
	// Counters holds the names of counters.
	Counters []string
	// Chains holds the chains that always exist.
	Chains []Chain
	// Chunk is the number of elements after which a transaction is sent. The default is 10,000.
	Chunk int
	// Idle is the time for which an unused object is kept.
	Idle time.Duration

	// Service adds the needs of a ServicePort to n.
	Service func(n *Needs, svc *plan.ServicePort)
	// Node returns the elements that depend on the host. Elements of a family without a table are ignored.
	Node func(n *plan.Node) []Entry
	// SameRules reports whether two hosts have the same rules, so that a change from a to b needs no full sync.
	SameRules func(a, b *plan.Node) bool
}

// SetID identifies an element of Schema.Sets.
type SetID uint8

// Set describes the elements of a set or map.
type Set struct {
	Name string
	Key  []Field
	Data Data
	// Proto is the protocol of all elements, if the set's key has no protocol field.
	Proto plan.Protocol
	// Named reports whether each element has the name of its ServicePort as a comment.
	Named bool
	// Leads reports whether the elements lead packets to elements of other sets. A change of several transactions
	// adds the leading elements after the elements of the other sets, and deletes the leading elements first.
	Leads bool
}

// Field is a component of an element's key.
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

// Data is the kind of value that a map's elements have.
type Data uint8

// A set holds no data. A map holds chains (as goto verdicts), addresses and ports, or chain numbers.
const (
	NoData Data = iota
	ToChain
	ToEndpoint
	ToNumber
)

// Range is a set of prefixes.
type Range struct {
	Name string
	// Of returns the prefixes of both families, in the form of plan.Minimal.
	Of func(n *plan.Node) []netip.Prefix
	// Last reports whether the set matches packets that another backend may still serve. In a takeover, the last
	// chunk fills the set.
	Last bool
}

// Chain is a fixed chain. Other chains jump to a chain without a hook.
type Chain struct {
	Name     string
	Type     knftables.BaseChainType
	Hook     knftables.BaseChainHook
	Priority knftables.BaseChainPriority
	Rules    []string
}

// has reports whether the key has the field.
func (s *Set) has(f Field) bool { return slices.Contains(s.Key, f) }

// typ returns the set's type in nft's syntax.
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

// typeOf returns the set's type as expressions, because nft has no type name for a slot number.
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
			parts = append(parts, "numgen random mod 65536") // any modulus works: the key has 32 bits
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
		chain.Policy = knftables.PtrTo(knftables.AcceptPolicy) // another program may have changed the policy
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

// familyIndex returns the index of a family in arrays with one element for each family.
func familyIndex(f plan.Family) int {
	if f == plan.IPv4 {
		return 0
	}
	return 1
}
