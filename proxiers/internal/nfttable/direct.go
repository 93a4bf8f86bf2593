package nfttable

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// refusedElement is the element that the kernel refuses.
type refusedElement struct {
	Entry
	// text is the element in nft's syntax, behind the name of its set.
	text  string
	cause error
}

func (r *refusedElement) Error() string { return fmt.Sprintf("%s: %s", r.text, r.cause) }
func (r *refusedElement) Unwrap() error { return r.cause }

// byNetlink has elements sent by netlink from now on. Unless it is strict, a transaction of another program that touches
// the table, and is reported, does not keep a batch from being sent: the full sync that follows finds it out.
func (b *batch) byNetlink(ctx context.Context, t *Table, strict bool) *batch {
	if t.wire == nil {
		return b
	}
	t.wire.reset() // an error may have left something
	b.wire = t.wire
	b.sendWire = func(w *wire) error {
		err := t.commitWire(ctx, w, strict)
		var r *netlink.Refused
		if errors.As(err, &r) && r.Content() {
			return t.refusedWire(ctx, w, r)
		}
		return err
	}
	return b
}

// commitWire sends elements by netlink. What cannot be sent so is left to the nft program.
func (t *Table) commitWire(ctx context.Context, w *wire, strict bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := t.watcher.Commit(&w.Batch, !strict)
	if errors.Is(err, netlink.ErrStale) || errors.Is(err, netlink.ErrTooBig) {
		t.env.Logger.Debug("elements are written by nft", "table", t.Table, "reason", err)
		return t.commitText(ctx, w)
	}
	if err == nil {
		t.byNetlink.Add(1)
	}
	return err
}

// refusedWire offers to the nft program what the kernel refuses by netlink. Should it succeed, it is the way that does
// not work on this kernel, and not the content.
func (t *Table) refusedWire(ctx context.Context, w *wire, r *netlink.Refused) error {
	if err := t.commitText(ctx, w); err == nil {
		t.env.Logger.Warn("kernel refuses elements by netlink that it takes from nft, which writes them from now on", "table", t.Table, "error", r)
		t.wire = nil
		return nil
	}
	set, e := w.refused(r)
	if set == nil {
		return r
	}
	text := e.appendValue(append(set.appendKey(nil, &e.Element), ' '))
	return &refusedElement{e, set.Name + " " + string(text), r}
}

// commitText has the nft program write elements.
func (t *Table) commitText(ctx context.Context, w *wire) error {
	tx := newTransaction()
	for _, s := range w.spans {
		t.text(tx, s)
	}
	return t.commit(ctx, tx)
}

// blame adds to a refusal the ServicePorts of the plan that need the element that the kernel refuses.
func (t *Table) blame(err error, next *plan.Plan) error {
	var r *refusedElement
	if !errors.As(err, &r) {
		return err
	}
	var users []*plan.ServicePort
	n := Needs{refs: newReferences()}
	for _, svc := range next.Services {
		if svc.Family != r.Family {
			continue
		}
		if n.of(&t.Schema, svc); n.has(r.Entry, t.Numbers) {
			users = append(users, svc)
		}
	}
	if len(users) == 0 {
		return err
	}
	return &proxiers.Refusal{Services: users, Err: err}
}

// has says that the entry is among them, one of an object included.
func (n *Needs) has(e Entry, numbers SetID) bool {
	return slices.Contains(n.entries, e) || slices.Contains(n.shared, e.Element) ||
		slices.ContainsFunc(n.objects, func(o Object) bool { return o.numbered && n.refs.numberEntry(numbers, o.ObjectID) == e })
}

// delete deletes elements of one set.
func (t *Table) delete(ctx context.Context, set *Set, list []Entry) error {
	s := span{set, list, true}
	if t.wire == nil {
		tx := newTransaction()
		t.text(tx, s)
		return t.commit(ctx, tx)
	}
	t.wire.reset() // as in byNetlink
	t.wire.write(t.Table, s)
	return t.commitWire(ctx, t.wire, false)
}
