package nfttable

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"edgeway/proxiers/internal/netlink"
)

// refusedElement is the error about one element that the kernel refuses.
type refusedElement struct {
	// text is the element in nft's syntax, after the name of its set.
	text  string
	cause error
}

func (r *refusedElement) Error() string { return fmt.Sprintf("%s: %s", r.text, r.cause) }
func (r *refusedElement) Unwrap() error { return r.cause }

// commitWire sends the elements in t.wire. If strict, it does not send them after a transaction of another program that
// touched the table (netlink.ErrTouched). Otherwise that transaction is only reported, and causes a full sync later.
func (t *Table) commitWire(ctx context.Context, strict bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := t.watcher.Commit(&t.wire.Batch, !strict)
	var r *netlink.Refused
	if errors.As(err, &r) && r.Content() {
		if set, e := t.wire.refused(r); set != nil {
			text := e.appendValue(append(set.appendKey(nil, &e.Element), ' '))
			return &refusedElement{set.Name + " " + string(text), r}
		}
	}
	if err == nil {
		t.byNetlink.Add(1)
	}
	return err
}

// delete deletes elements of one set.
func (t *Table) delete(ctx context.Context, set *Set, list []Entry) error {
	for chunk := range slices.Chunk(list, t.chunk) {
		t.wire.reset() // an error may have left something
		t.wire.write(t.Table, span{set, chunk, true})
		if err := t.commitWire(ctx, false); err != nil {
			return err
		}
	}
	return nil
}
