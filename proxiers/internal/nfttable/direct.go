package nfttable

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"edgeway/proxiers/internal/netlink"
)

// refusedElement is the error for an element that the kernel rejects.
type refusedElement struct {
	// text is the name of the set and the element in nft's syntax.
	text  string
	cause error
}

func (r *refusedElement) Error() string { return fmt.Sprintf("%s: %s", r.text, r.cause) }
func (r *refusedElement) Unwrap() error { return r.cause }

// commitWire sends the elements in t.wire, and reports changes by other programs as drift. If strict is set and another
// program has changed the table, commitWire sends no element and returns netlink.ErrTouched.
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

func (t *Table) delete(ctx context.Context, set *Set, list []Entry) error {
	for chunk := range slices.Chunk(list, t.chunk) {
		t.wire.reset() // an earlier error may have left messages in wire
		t.wire.write(t.Table, span{set, chunk, true})
		if err := t.commitWire(ctx, false); err != nil {
			return err
		}
	}
	return nil
}
