package nfttable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// maxReplaced is the number of elements up to which tables are replaced in one transaction. nft takes 220 MB for that.
const maxReplaced = 100_000

// full makes tables of unknown content agree with the plan. Where they exist, what is already
// served stays served: the difference is one transaction.
func (t *Table) full(ctx context.Context, next *plan.Plan) (*references, error) {
	t.watcher.Forget()
	present, err := t.kernel.tables(t.Table)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(t.families, func(f plan.Family) bool { return slices.Contains(present, netlink.Family(f)) }) {
		return t.build(ctx, next)
	}
	refs, err := t.repair(ctx, next)
	if !refused(err) && !errors.Is(err, errUnreadable) {
		return refs, err
	}
	t.env.Logger.Warn("nftables table is written anew as a whole", "table", t.Table, "error", err)
	refs, again := t.recreate(ctx, next)
	if refused(again) { // the first one may name an element
		again = fmt.Errorf("%w; in place: %w", again, err)
	}
	return refs, again
}

// build fills tables that do not exist, in chunks. Each chunk is complete in itself. What is still to come falls to
// the ranges, such as the one of addresses that are dropped as long as no Service has them, which clients answer
// by trying again; in a takeover those of Range.Last wait, and it is left to the other backend.
func (t *Table) build(ctx context.Context, next *plan.Plan) (*references, error) {
	b := t.batch(ctx, newReferences(), time.Time{}).byNetlink(ctx, t, false)
	err := b.whole(next, baseOptions{takeover: t.env.Takeover}, func(done int) { t.env.Progress(done, len(next.Services)) })
	if err != nil {
		return nil, fullError("first sync", err)
	}
	t.env.Progress(len(next.Services), len(next.Services))
	return b.refs, nil
}

// recreate replaces the tables as a whole: in one transaction, unless they are so large that nothing is served for a
// moment. What packets wrote into maps is lost.
func (t *Table) recreate(ctx context.Context, next *plan.Plan) (*references, error) {
	refs, elements := newReferences(), 0
	t.needs(refs, next, func(n *Needs) { elements += len(n.entries) + len(n.shared) })
	b := t.batch(ctx, newReferences(), time.Time{})
	if elements <= maxReplaced {
		b.send = nil
	} else {
		b.byNetlink(ctx, t, false)
	}
	err := b.whole(next, baseOptions{fresh: true}, nil)
	if err == nil && b.send == nil {
		err = t.commit(ctx, b.tx)
	}
	if err != nil {
		return nil, fullError("new tables", err)
	}
	t.env.Progress(len(next.Services), len(next.Services))
	return b.refs, nil
}

func fullError(what string, err error) error {
	if refused(err) {
		return fmt.Errorf("%s: %w: %w", what, proxiers.ErrRefused, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// repair compares the tables with the plan and writes the difference, and all rules.
func (t *Table) repair(ctx context.Context, next *plan.Plan) (*references, error) {
	refs := newReferences()
	b := t.batch(ctx, refs, time.Time{}).byNetlink(ctx, t, false)
	b.together, b.created = true, t.count(refs, next)
	for _, f := range t.families {
		list, err := t.kernel.objects(f, t.Table)
		if err != nil {
			return nil, err
		}
		for _, id := range t.unknown(refs, list) {
			refs.idle[id] = idleness{}
		}
	}
	differing, err := t.compare(t.kernel, refs, next)
	if err != nil {
		return nil, err
	}
	t.base(b.tx, next.Node, baseOptions{})
	if err = b.reconcile(differing, next); err == nil {
		err = b.finish()
	}
	if err != nil {
		return nil, fmt.Errorf("repair: %w", err)
	}
	if err := t.sweep(ctx, refs, time.Now()); err != nil {
		t.env.Logger.Debug("unknown chains and maps stay for now", "table", t.Table, "error", err)
	}
	t.env.Progress(len(next.Services), len(next.Services))
	return refs, nil
}

// finish sends what is left of a repair. The rules of idle chains go: the chains may be needed again before they are
// deleted, and are written anew then. Nothing may lead to them any more, so it is the last transaction.
func (b *batch) finish() error {
	if b.sent > 0 || b.size > b.r.chunk {
		if err := b.flush(); err != nil {
			return err
		}
	}
	for id := range b.refs.idle {
		if id.Kind == ChainObject {
			b.tx.Flush(b.r.chain(id))
		}
	}
	return b.flush()
}
