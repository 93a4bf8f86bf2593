package nfttable

import (
	"context"
	"slices"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// maxWatchedOperations is the maximum number of operations in a transaction that the watcher can follow.
const maxWatchedOperations = 1000

// affectedObject returns "the table" if a notification is about one of Edgeway's tables. The watcher includes the
// result in its drift report.
func (t *Table) affectedObject(m netlink.Message) string {
	ofFamily := slices.ContainsFunc(t.families, func(f plan.Family) bool { return netlink.Family(f) == m.Family })
	if ofFamily && string(netlink.Text(netlink.Attr(m.Attrs, netlink.AttrTable))) == t.Table {
		return "the table"
	}
	return ""
}

func (t *Table) commit(ctx context.Context, tx *knftables.Transaction) error {
	n := tx.NumOperations()
	if n == 0 {
		return nil
	}
	err := t.watcher.RunCommit(1, n > maxWatchedOperations, func() error { return t.nft.run(ctx, tx) })
	if err == nil {
		t.programCount.Add(1)
	}
	return err
}

// commitElements sends the elements in t.netlinkBatch, and reports changes by other programs as drift. If strict is set
// and another program has changed the table, commitElements sends no elements and returns netlink.ErrDrift.
func (t *Table) commitElements(ctx context.Context, strict bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	err := t.watcher.Commit(&t.netlinkBatch, !strict)
	if err == nil {
		t.netlinkCount.Add(1)
	}
	return err
}
