package nfttable

import (
	"errors"
	"slices"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers/plan"
)

// chunkElements is the default for Schema.ChunkSize. With 10,000 elements, nft's startup time is negligible. A chunk of
// 10,000 elements also fits into a small host's memory, because nft (1.0.6) uses 2.2 kB for each element.
const chunkElements = 10_000

// serviceChanges describes changes to ServicePorts, in plan order.
type serviceChanges struct {
	list []*plan.ServicePort
	// versions returns the old and new versions of a ServicePort in the list. old is nil if the ServicePort is new, and
	// next is nil if the next plan lacks the ServicePort.
	versions func(*plan.ServicePort) (old, next *plan.ServicePort)
	// progress reports the number of ServicePorts that the batch has written so far. If progress is nil, the batch
	// reports nothing.
	progress func(int)
	// moves reports whether an element moves between ServicePorts in the list. If moves is nil, no element moves.
	moves func() bool
}

// errMoves means that a change moves elements between ServicePorts, but does not fit into one transaction. If the
// change were split, the transaction that adds an element for the new owner might precede the one that deletes it for
// the old owner.
var errMoves = errors.New("a change that moves elements between ServicePorts does not fit into one transaction")

func added(svc *plan.ServicePort) (old, next *plan.ServicePort)   { return nil, svc }
func removed(svc *plan.ServicePort) (old, next *plan.ServicePort) { return svc, nil }

// collect adds the changes in s to the batch, and sends the batch whenever it becomes too large. One transaction
// contains all ports of a Service, unless the Service has too many ports. Between transactions, the rules reject
// packets to ClusterIP ports that Edgeway has not written yet.
func (b *batch) collect(s serviceChanges) error {
	for i, svc := range s.list {
		if b.size >= 2*b.r.chunkSize || b.size >= b.r.chunkSize && (i == 0 || !sameService(s.list[i-1], svc)) {
			if i > 0 && b.send != nil && s.moves != nil && s.moves() {
				return errMoves
			}
			if i > 0 {
				s.moves = nil
			}
			if err := b.flushChunk(); err != nil {
				return err
			}
			if s.progress != nil {
				s.progress(i)
			}
		}
		if b.r.serves(svc.Family) {
			old, next := s.versions(svc)
			b.replace(old, next)
		}
	}
	return nil
}

func sameService(a, b *plan.ServicePort) bool {
	return a.Name.Namespace == b.Name.Namespace && a.Name.Name == b.Name.Name
}

// flushChunk sends the collected changes, unless the batch must be one transaction.
func (b *batch) flushChunk() error {
	if b.send == nil {
		return nil
	}
	return b.flush()
}

// flush adds the collected changes to the transaction and sends it. For packets, all changes in a transaction take
// effect at once. A netlink batch adds the elements in a second transaction, before which no element refers to the new
// objects.
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

// writeAll writes the collected changes to the netlink batch or, if there is none, to the transaction. A packet
// traverses the rules of one generation, but each lookup uses the current elements (Linux 6.18). If a match leads to a
// second lookup, the element that the second lookup needs must therefore still exist. With netlink, transactions are
// cheap, so a second transaction deletes the elements that no lookup needs any more.
func (b *batch) writeAll() error {
	var gone [2][][]Entry
	if b.netlinkBatch != nil {
		gone = b.takeObsolete()
	}
	b.write(b.deleted, true, false)
	b.write(b.added, false, true)
	if b.netlinkBatch == nil {
		return nil
	}
	err := b.commit()
	b.write(gone, true, false)
	return err
}

// takeObsolete returns the elements that b deletes but does not add again, and removes these elements from b.deleted.
// takeObsolete skips sets with LeadsToLookup and sets of ranges.
func (b *batch) takeObsolete() (gone [2][][]Entry) {
	for f := range gone {
		gone[f] = make([][]Entry, len(b.r.Sets))
		for set, list := range b.deleted[f] {
			switch {
			case len(list) == 0 || b.r.Sets[set].LeadsToLookup || b.r.Sets[set].has(PeerPrefix):
				// Ranges must not overlap.
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

func (b *batch) write(lists [2][][]Entry, remove, add bool) {
	for _, f := range b.r.families {
		for _, list := range lists[familyIndex(f)] {
			b.command(list, remove, add)
		}
	}
}

func (b *batch) command(list []Entry, remove, add bool) {
	if len(list) == 0 {
		return
	}
	set := &b.r.Sets[list[0].Set]
	if remove {
		b.span(setChange{set, list, true})
	}
	if add {
		b.span(setChange{set, list, false})
	}
}

func (b *batch) span(s setChange) {
	if b.netlinkBatch != nil {
		writeElements(b.netlinkBatch, b.r.Table, s)
	} else {
		b.r.text(b.tx, s)
	}
}

func (r *renderer) text(tx *knftables.Transaction, s setChange) {
	for group := range slices.Chunk(s.list, elementsPerCommand) {
		if s.remove {
			tx.Delete(r.elements(s.set, group, false))
		} else {
			tx.Add(r.elements(s.set, group, true))
		}
	}
}

// commit first sends the transaction if it is not empty, and then sends the elements in netlinkBatch.
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
	if b.netlinkBatch == nil || b.netlinkBatch.Messages() == 0 {
		return nil
	}
	err := b.sendNetlink()
	resetBatch(b.netlinkBatch)
	return err
}
