package nfttable

import (
	"slices"
	"time"

	"edgeway/proxiers/plan"
)

// ObjectKind distinguishes chains, maps and other sets.
type ObjectKind uint8

// The kinds of objects. Chains, sets and maps of the Schema are not objects. A setObject is any other set, which no
// ServicePort needs.
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

// Object is a chain or map that a ServicePort needs. Objects with the same name have the same contents.
type Object struct {
	ObjectID
	// Rules holds the rules of a chain.
	Rules Rules
	// Size and Timeout apply to a map. Rules fill the map with pairs of a client's address and another address.
	Size    uint64
	Timeout time.Duration
	// numbered reports whether maps refer to a chain by its number.
	numbered bool
}

// Rules returns the rules of a chain on a host, as templates.
type Rules interface {
	Rules(n *plan.Node) []string
}

// Needs holds everything that a ServicePort needs in the table of its family. Schema.Service adds the needs.
type Needs struct {
	refs *references
	sets []Set
	// comment is the comment of the ServicePort.
	comment comment
	// entries belong to this ServicePort alone.
	entries []Entry
	// shared holds elements of sets that other ServicePorts may need too.
	shared []Element
	// objects may be shared with other ServicePorts. Maps come before the chains that use them.
	objects []Object
}

// of sets n to the needs of svc. A nil svc needs nothing.
func (n *Needs) of(s *Schema, svc *plan.ServicePort) {
	n.entries, n.shared, n.objects = n.entries[:0], n.shared[:0], n.objects[:0]
	if svc != nil {
		n.sets, n.comment = s.Sets, commentOf(svc.Name)
		s.Service(n, svc)
	}
}

// Entry adds an entry that only this ServicePort needs.
func (n *Needs) Entry(set SetID, e Element, v Value) {
	e.Set = set
	if n.sets[set].Named {
		v.comment = n.comment
	}
	n.entries = append(n.entries, Entry{e, v})
}

// Shared adds an element of a set that other ServicePorts may need too.
func (n *Needs) Shared(set SetID, e Element) {
	e.Set = set
	n.shared = append(n.shared, e)
}

// Object adds an object. The objects to which the object refers must be added first. An object may be added twice.
func (n *Needs) Object(o Object) {
	if !slices.ContainsFunc(n.objects, func(have Object) bool { return have.ObjectID == o.ObjectID }) {
		n.objects = append(n.objects, o)
	}
}

// Chain adds a chain to which maps refer by its number, and returns the number.
func (n *Needs) Chain(o Object) ChainNumber {
	o.numbered = true
	n.Object(o)
	return n.refs.number(o.ObjectID)
}
