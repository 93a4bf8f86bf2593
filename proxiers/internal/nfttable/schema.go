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

// Schema describes the contents of the tables. Rules are templates in nft's syntax: $ip stands for ip or ip6, $mark for
// the masquerade mark, $rest for the complement of the masquerade mark, and $own for proxiers.OwnMark.
type Schema struct {
	Table string
	// Sets holds the fixed sets and maps whose elements Edgeway writes individually. A SetID is an index into Sets.
	Sets []Set
	// Numbers is the SetID of the map from chain numbers to chains.
	Numbers SetID
	// Ranges holds the interval sets. An interval set has few elements, and Edgeway always replaces all of them.
	Ranges []Range
	// Counters holds the names of the packet counters.
	Counters []string
	// Chains holds the fixed chains.
	Chains []Chain
	// ChunkSize is the number of elements after which a batch sends a transaction. The default is 10,000.
	ChunkSize int
	// IdleTimeout is the time after which Maintain deletes an unused object.
	IdleTimeout time.Duration

	// AddService adds a ServicePort's needs to n.
	AddService func(n *Needs, svc *plan.ServicePort)
	// NodeEntries returns the elements that depend on the host. Edgeway ignores elements in a family without a table.
	NodeEntries func(n *plan.Node) []Entry
	// SameRules reports whether the hosts a and b have the same rules, in which case a change from a to b needs no full
	// sync.
	SameRules func(a, b *plan.Node) bool
}

// SetID is an index into Schema.Sets.
type SetID uint8

// Set describes the elements of a set or map.
type Set struct {
	Name string
	Key  []Field
	Data Data
	// Counts reports whether the kernel counts the packets that match each element of a set (since Linux 5.7).
	Counts bool
	// Proto is the protocol of all elements if the set's key has no protocol field.
	Proto plan.Protocol
	// Named reports whether each element's comment is the name of its ServicePort.
	Named bool
	// LeadsToLookup reports whether a match in the set leads to a lookup in another set. A change that spans several
	// transactions deletes elements from sets with LeadsToLookup first, and adds elements to these sets last.
	LeadsToLookup bool
}

// Field is a component of an element's key.
type Field uint8

// The constants are the fields that an element's key can have.
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

// The constants are the kinds of values. A set has no values. A map's values are chains (as goto verdicts), addresses
// and ports, or chain numbers.
const (
	NoData Data = iota
	ToChain
	ToEndpoint
	ToNumber
)

// Range is a set of prefixes.
type Range struct {
	Name string
	// Prefixes returns the prefixes of both families, in the form that plan.NormalizePrefixes returns.
	Prefixes func(n *plan.Node) []netip.Prefix
	// FillLast reports whether Edgeway writes the set's elements in the last chunk of a takeover. Until the last chunk,
	// another backend may still handle packets that match the set.
	FillLast bool
}

// Chain describes a fixed chain. If a chain has no hook, packets reach it only through a jump.
type Chain struct {
	Name     string
	Type     knftables.BaseChainType
	Hook     knftables.BaseChainHook
	Priority knftables.BaseChainPriority
	Rules    []string
}

func (s *Set) has(f Field) bool { return slices.Contains(s.Key, f) }

// nftType returns the set's type in nft's syntax.
func (s *Set) nftType(f plan.Family) string {
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

// typeOf returns the set's type as a list of expressions, because nft has no type name for a slot number.
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
			parts = append(parts, "numgen random mod 65536") // any modulus is suitable, because the key has 32 bits
		}
	}
	return fmt.Sprintf("%s : %s daddr . %s", strings.Join(parts, " . "), ip, port)
}

func (s *Set) add(tx *knftables.Transaction, table string, f plan.Family) {
	if s.Data == NoData {
		set := &knftables.Set{Family: nftFamily(f), Table: table, Name: s.Name, Type: s.nftType(f)}
		if s.Counts {
			set.Type += " ; counter" // knftables (0.0.22) has no field for it
		}
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
		m.Type = s.nftType(f)
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
