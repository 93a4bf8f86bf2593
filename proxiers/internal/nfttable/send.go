package nfttable

import (
	"errors"
	"slices"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers/plan"
)

// chunkElements is the number of elements from which a transaction is sent before more is added: enough that the
// start of nft does not count, and few enough for a small host, as nft (1.0.6) takes 2.2 kB for each.
const chunkElements = 10_000

// step is what becomes of some ServicePorts, in plan order.
type step struct {
	list []*plan.ServicePort
	// of gives a ServicePort of the list before and after; nil: there is none.
	of func(*plan.ServicePort) (old, next *plan.ServicePort)
	// done is told how many are written; nil: nobody wants to know.
	done func(int)
	// moves reports whether an element moves from one ServicePort of the list to another one; nil: none does.
	moves func() bool
}

// errMoves says that elements move between ServicePorts, and that the change takes several transactions: one that adds
// an element may come before the one that deletes the element of its last owner.
var errMoves = errors.New("elements move between ServicePorts of several transactions")

func added(svc *plan.ServicePort) (old, next *plan.ServicePort)   { return nil, svc }
func removed(svc *plan.ServicePort) (old, next *plan.ServicePort) { return svc, nil }

// take collects a step, and sends what gets too much. Ports of one Service stay together as long as they are not too
// many by themselves: in between, a ClusterIP's other ports are rejected.
func (b *batch) take(s step) error {
	for i, svc := range s.list {
		if b.size >= 2*b.r.chunk || b.size >= b.r.chunk && (i == 0 || !sameService(s.list[i-1], svc)) {
			if i > 0 && b.send != nil && s.moves != nil && s.moves() {
				return errMoves
			}
			if i > 0 {
				s.moves = nil
			}
			if err := b.spill(); err != nil {
				return err
			}
			if s.done != nil {
				s.done(i)
			}
		}
		if b.r.serves(svc.Family) {
			old, next := s.of(svc)
			b.replace(old, next)
		}
	}
	return nil
}

func sameService(a, b *plan.ServicePort) bool {
	return a.Name.Namespace == b.Name.Namespace && a.Name.Name == b.Name.Name
}

// spill sends what was collected, where there may be several transactions.
func (b *batch) spill() error {
	if b.send == nil {
		return nil
	}
	return b.flush()
}

// flush adds what was collected to the transaction, and sends it. Packets see all of it or nothing, unless it is too
// much for one transaction. By wire, elements are a transaction of their own behind that of the objects, to which
// nothing leads before.
func (b *batch) flush() error {
	for _, o := range b.created {
		b.r.addObject(b.tx, o)
	}
	err := b.writeAll()
	if err == nil {
		err = b.commit()
	}
	b.reset()
	return err
}

// writeAll adds commands for what was collected. A packet keeps to the rules of one generation, but each of its lookups
// asks for the elements of that moment (Linux 6.18): one that was led to an element just before must find it still. So
// by netlink, where a transaction costs little, what nothing leads to any more goes in a second one.
func (b *batch) writeAll() error {
	var gone [2][][]Entry
	if b.wire != nil {
		gone = b.takeGone()
	}
	b.write(b.deleted, true, false)
	b.write(b.added, false, true)
	if b.wire == nil {
		return nil
	}
	err := b.commit()
	b.write(gone, true, false)
	return err
}

// takeGone takes what is deleted for good out of the sets that lead nowhere.
func (b *batch) takeGone() (gone [2][][]Entry) {
	for f := range gone {
		gone[f] = make([][]Entry, len(b.r.Sets))
		for set, list := range b.deleted[f] {
			switch {
			case len(list) == 0 || b.r.Sets[set].Leads || b.r.Sets[set].has(PeerPrefix): // ranges must not overlap
			case len(b.added[f][set]) == 0:
				gone[f][set], b.deleted[f][set] = list, nil
			default:
				again := make(map[Element]bool, len(b.added[f][set]))
				for i := range b.added[f][set] {
					again[b.added[f][set][i].Element] = true
				}
				b.deleted[f][set] = slices.DeleteFunc(list, func(e Entry) bool {
					if !again[e.Element] {
						gone[f][set] = append(gone[f][set], e)
					}
					return !again[e.Element]
				})
			}
		}
	}
	return gone
}

// write adds commands for all elements to the transaction.
func (b *batch) write(lists [2][][]Entry, remove, add bool) {
	for _, f := range b.r.families {
		for _, list := range lists[familyIndex(f)] {
			b.command(list, remove, add)
		}
	}
}

// command adds commands for elements of one set.
func (b *batch) command(list []Entry, remove, add bool) {
	if len(list) == 0 {
		return
	}
	set := &b.r.Sets[list[0].Set]
	if remove {
		b.span(span{set, list, true})
	}
	if add {
		b.span(span{set, list, false})
	}
}

func (b *batch) span(s span) {
	if b.wire != nil {
		b.wire.write(b.r.Table, s)
	} else {
		b.r.text(b.tx, s)
	}
}

// text adds elements to a transaction.
func (r *renderer) text(tx *knftables.Transaction, s span) {
	for group := range slices.Chunk(s.list, elementsPerCommand) {
		if s.remove {
			tx.Delete(r.elements(s.set, group, false))
		} else {
			tx.Add(r.elements(s.set, group, true))
		}
	}
}

// commit sends the transaction, and then what goes by wire, if they have anything to do.
func (b *batch) commit() error {
	if b.send == nil {
		return nil
	}
	if b.tx.NumOperations() > 0 {
		tx := b.tx
		b.tx = newTransaction()
		if err := b.send(tx); err != nil {
			return err
		}
	}
	if b.wire == nil || b.wire.Messages() == 0 {
		return nil
	}
	err := b.sendWire()
	b.wire.reset()
	return err
}
