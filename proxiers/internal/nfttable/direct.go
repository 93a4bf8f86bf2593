package nfttable

import (
	"context"
	"slices"
)

// commitWire sends the elements in t.wire, and reports changes by other programs as drift. If strict is set and another
// program has changed the table, commitWire sends no element and returns netlink.ErrTouched.
func (t *Table) commitWire(ctx context.Context, strict bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := t.watcher.Commit(&t.wire, !strict)
	if err == nil {
		t.byNetlink.Add(1)
	}
	return err
}

func (t *Table) delete(ctx context.Context, set *Set, list []Entry) error {
	for chunk := range slices.Chunk(list, t.chunk) {
		resetWire(&t.wire) // an earlier error may have left messages in wire
		writeWire(&t.wire, t.Table, span{set, chunk, true})
		if err := t.commitWire(ctx, false); err != nil {
			return err
		}
	}
	return nil
}
