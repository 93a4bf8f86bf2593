package nfttable

import (
	"slices"
	"time"

	"edgeway/proxiers/plan"
)

// ObjectKind tells objects apart.
type ObjectKind uint8

// What the Schema has is no object. A set that it does not have is one, which nothing needs.
const (
	ChainObject ObjectKind = iota
	MapObject
	setObject
)

// ObjectID identifies a chain, map or set.
type ObjectID struct {
	Family plan.Family
	Kind   ObjectKind
	Name   string
}

// Object is a chain or map that a ServicePort needs. Its name says it all: two of one name are equal.
type Object struct {
	ObjectID
	// Rules are a chain's.
	Rules Rules
	// Size and Timeout are a map's, which rules fill: from a client's address to another one.
	Size    uint64
	Timeout time.Duration
	// numbered says that a chain is led to by its number.
	numbered bool
}

// Rules gives the rules of a chain, which are templates, on a host.
type Rules interface {
	Rules(n *plan.Node) []string
}

// Needs is all that a ServicePort needs in the table of its family. Schema.Service fills it.
type Needs struct {
	refs *references
	sets []Set
	// comment is that of the ServicePort.
	comment comment
	// Entries belong to this ServicePort alone.
	entries []Entry
	// Shared elements of sets may be needed by other ServicePorts too.
	shared []Element
	// Objects may be shared too. Maps come before the chains that use them.
	objects []Object
}

// of makes them those of svc; nil needs nothing.
func (n *Needs) of(s *Schema, svc *plan.ServicePort) {
	n.entries, n.shared, n.objects = n.entries[:0], n.shared[:0], n.objects[:0]
	if svc != nil {
		n.sets, n.comment = s.Sets, commentOf(svc.Name)
		s.Service(n, svc)
	}
}

// Entry adds one that this ServicePort alone needs.
func (n *Needs) Entry(set SetID, e Element, v Value) {
	e.Set = set
	if n.sets[set].Named {
		v.comment = n.comment
	}
	n.entries = append(n.entries, Entry{e, v})
}

// Shared adds an element of a set that others may need too.
func (n *Needs) Shared(set SetID, e Element) {
	e.Set = set
	n.shared = append(n.shared, e)
}

// Object adds one, behind those that it refers to. It may be added twice.
func (n *Needs) Object(o Object) {
	if !slices.ContainsFunc(n.objects, func(have Object) bool { return have.ObjectID == o.ObjectID }) {
		n.objects = append(n.objects, o)
	}
}

// Chain adds a chain that is led to by its number, and gives the number.
func (n *Needs) Chain(o Object) ChainNumber {
	o.numbered = true
	n.Object(o)
	return n.refs.number(o.ObjectID)
}
