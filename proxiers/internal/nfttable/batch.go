package nfttable

import (
	"time"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// batch collects changes to the nft tables and sends them in transactions. For packets, a transaction takes effect
// atomically, regardless of the order of its commands. However, nft accepts a transaction only if the transaction
// deletes a key before adding it again. The elements of each set must also be consecutive in the transaction.
type batch struct {
	r    *renderer
	refs *references
	now  time.Time
	// tx is the next transaction. The commands in tx precede the collected changes.
	tx *knftables.Transaction
	// send sends a transaction. If send is nil, the batch is one transaction of any size.
	send func(*knftables.Transaction) error
	// netlinkBatch holds the elements that follow tx, and sendNetlink sends them. If netlinkBatch is nil, tx also
	// contains the elements.
	netlinkBatch *netlink.Batch
	sendNetlink  func() error

	created []Object
	// deleted and added are indexed by family and set. size is the total number of entries in deleted and added.
	deleted, added [2][][]Entry
	size           int
	old, new       Needs
}

func newBatch(r *renderer, refs *references, now time.Time) *batch {
	b := &batch{r: r, refs: refs, now: now, tx: newTransaction(), old: Needs{refs: refs}, new: Needs{refs: refs}}
	for f := range b.added {
		b.deleted[f], b.added[f] = make([][]Entry, len(r.Sets)), make([][]Entry, len(r.Sets))
	}
	return b
}

// reset empties the lists but keeps their memory, because a first sync of 10,000 Services fills them ten times.
func (b *batch) reset() {
	b.created, b.size = nil, 0
	for f := range b.added {
		for set := range b.added[f] {
			b.deleted[f][set], b.added[f][set] = b.deleted[f][set][:0], b.added[f][set][:0]
		}
	}
}

func (b *batch) add(e Entry) {
	list := &b.added[familyIndex(e.Family)][e.Set]
	*list = append(*list, e)
	b.size++
}

func (b *batch) delete(e Entry) {
	list := &b.deleted[familyIndex(e.Family)][e.Set]
	*list = append(*list, e)
	b.size++
}

// replace replaces one ServicePort. prev is nil if the ServicePort is new, and next is nil if the ServicePort was
// removed.
func (b *batch) replace(prev, next *plan.ServicePort) {
	b.old.update(&b.r.Schema, prev)
	b.new.update(&b.r.Schema, next)
	for _, o := range b.new.objects {
		first, absent := b.refs.takeObject(o.ObjectID)
		if absent {
			b.created = append(b.created, o)
		}
		if first && o.numbered {
			b.add(b.refs.numberEntry(b.r.Numbers, o.ObjectID))
		}
	}
	for _, o := range b.old.objects {
		if b.refs.dropObject(o.ObjectID, b.now) && o.numbered {
			b.delete(b.refs.numberEntry(b.r.Numbers, o.ObjectID))
		}
	}
	for _, e := range b.new.shared {
		if b.refs.take(e) {
			b.add(Entry{Element: e})
		}
	}
	for _, e := range b.old.shared {
		if b.refs.drop(e) {
			b.delete(Entry{Element: e})
		}
	}
	b.diff(b.old.entries, b.new.entries)
}

// diff adds the differences between two lists of entries to the batch. The lists must not contain duplicates.
func (b *batch) diff(old, next []Entry) {
	if len(old) == 0 {
		for _, e := range next {
			b.add(e)
		}
		return
	}
	wanted := make(map[Element]Value, len(next))
	for _, e := range next {
		wanted[e.Element] = e.Value
	}
	kept := make(map[Element]bool, len(wanted))
	for _, e := range old {
		if v, ok := wanted[e.Element]; ok && v == e.Value {
			kept[e.Element] = true
		} else {
			b.delete(e)
		}
	}
	for _, e := range next {
		if !kept[e.Element] {
			b.add(e)
		}
	}
}

// elementsPerCommand is the maximum number of elements in one nft command. Longer commands are no faster than commands
// with a few hundred elements.
const elementsPerCommand = 200

// elementLength is the approximate length in bytes of an IPv4 element with its value.
const elementLength = 56

// elements combines several elements of one set into a knftables.Element, with values for an add command and without
// values for a delete command. knftables expects one element and writes "{ key : value }", so elements puts the whole
// list except the last value into the key. Compared with one command for each element, a list halves nft's CPU time.
func (r *renderer) elements(set *Set, group []Entry, withValues bool) *knftables.Element {
	el := &knftables.Element{Family: nftFamily(group[0].Family), Table: r.Table}
	list := make([]byte, 0, elementLength*len(group))
	for i := range group {
		if i > 0 {
			list = append(list, ", "...)
		}
		list = set.appendKey(list, &group[i].Element)
		if withValues {
			list = group[i].comment.appendText(list)
		}
		if withValues && set.Data != NoData && i < len(group)-1 {
			list = group[i].appendValue(append(list, " : "...))
		}
	}
	el.Key = []string{string(list)}
	if set.Data == NoData {
		el.Set = set.Name
		return el
	}
	el.Map = set.Name
	if withValues {
		el.Value = []string{string(group[len(group)-1].appendValue(nil))}
	}
	return el
}
