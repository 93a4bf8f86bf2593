package nfttable

import (
	"slices"
	"time"

	"edgeway/proxiers/plan"
)

// ObjectKind is the kind of an object: a chain, a map or a set.
type ObjectKind uint8

// The kinds of objects. The fixed chains, sets and maps in the Schema are not objects. A setObject is a set that no
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

// Object is a chain or map that a ServicePort needs. Objects with equal names have equal contents.
type Object struct {
	ObjectID
	Rules Rules
	// Size is the maximum number of elements in a map. Rules in the packet path add the elements, each of which maps a
	// client's address to another address. Timeout is the time after which an element expires unless a rule updates it.
	Size    uint64
	Timeout time.Duration
	// numbered reports whether maps refer to the chain by its number.
	numbered bool
}

// Rules returns the templates for a chain's rules on a host.
type Rules interface {
	Rules(n *plan.Node) []string
}

// Needs holds the elements and objects that a ServicePort needs in the table for its family. Schema.AddService adds
// elements and objects to a Needs.
type Needs struct {
	refs    *references
	sets    []Set
	comment comment
	// entries holds the elements that only this ServicePort needs.
	entries []Entry
	// shared holds elements that other ServicePorts may also need.
	shared []Element
	// objects holds objects that other ServicePorts may also need. Maps precede the chains that use them.
	objects []Object
}

// update replaces the contents of n with the needs of svc. A nil svc has no needs.
func (n *Needs) update(s *Schema, svc *plan.ServicePort) {
	n.entries, n.shared, n.objects = n.entries[:0], n.shared[:0], n.objects[:0]
	if svc != nil {
		n.sets, n.comment = s.Sets, commentOf(svc.Name)
		s.AddService(n, svc)
	}
}

// AddEntry adds an entry that only this ServicePort needs.
func (n *Needs) AddEntry(set SetID, e Element, v Value) {
	e.Set = set
	if n.sets[set].Named {
		v.comment = n.comment
	}
	n.entries = append(n.entries, Entry{e, v})
}

// AddShared adds an element that other ServicePorts may also need.
func (n *Needs) AddShared(set SetID, e Element) {
	e.Set = set
	n.shared = append(n.shared, e)
}

// AddObject adds an object. The caller must first add the objects that the new object refers to. Adding an object twice
// has no effect.
func (n *Needs) AddObject(o Object) {
	if !slices.ContainsFunc(n.objects, func(have Object) bool { return have.ObjectID == o.ObjectID }) {
		n.objects = append(n.objects, o)
	}
}

// AddChain adds a chain that maps refer to by number, and returns the number.
func (n *Needs) AddChain(o Object) ChainNumber {
	o.numbered = true
	n.AddObject(o)
	return n.refs.number(o.ObjectID)
}
