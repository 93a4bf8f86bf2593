package nfttable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfnetlink"
	"edgeway/proxiers/plan"
)

// chunkSize is the number of ServicePorts in one transaction of a first sync: enough that the start of nft
// does not count, and small enough for the kernel's limits on a netlink message.
const chunkSize = 1000

// full makes tables of unknown content agree with the plan. Where they exist, what is already
// served stays served: the difference is one transaction.
func (t *Table) full(ctx context.Context, next *plan.Plan) (*references, error) {
	t.monitor.Forget()
	present, err := t.kernel.tables(t.Table)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(t.families, func(f plan.Family) bool { return slices.Contains(present, nfnetlink.Family(f)) }) {
		return t.build(ctx, next)
	}
	refs, err := t.repair(ctx, next)
	if !refused(err) && !errors.Is(err, errUnreadable) {
		return refs, err
	}
	t.env.Logger.Warn("nftables table is written anew as a whole", "table", t.Table, "error", err)
	return t.recreate(ctx, next)
}

// build fills tables that do not exist, in chunks. Each chunk is complete in itself. What is still to come falls to
// the ranges, such as the one of addresses that are dropped as long as no Service has them, which clients answer
// by trying again; in a takeover those of Range.Last wait, and it is left to the other backend.
func (t *Table) build(ctx context.Context, next *plan.Plan) (*references, error) {
	refs, rest := newReferences(), next.Services
	for first := true; first || len(rest) > 0; first = false {
		tx := t.nft.NewTransaction()
		if first {
			t.base(tx, next.Node, baseOptions{elements: true, takeover: t.env.Takeover})
		}
		rest = t.chunk(tx, refs, rest, chunkSize)
		if len(rest) == 0 && t.env.Takeover {
			t.addRanges(tx, next.Node, false)
		}
		if err := t.commit(ctx, tx); err != nil {
			return nil, fullError("first sync", err)
		}
		t.env.Progress(len(next.Services)-len(rest), len(next.Services))
	}
	return refs, nil
}

// recreate replaces the tables as a whole in one transaction. What packets wrote into maps is lost.
func (t *Table) recreate(ctx context.Context, next *plan.Plan) (*references, error) {
	refs := newReferences()
	if err := t.commit(ctx, t.whole(refs, next, true)); err != nil {
		return nil, fullError("new tables", err)
	}
	t.env.Progress(len(next.Services), len(next.Services))
	return refs, nil
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
	b := newBatch(t.renderer, refs, time.Time{})
	b.created = t.count(refs, next)
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
	b.reconcile(differing, next)
	if err := t.commit(ctx, t.repairs(b, next)); err != nil {
		return nil, fmt.Errorf("repair: %w", err)
	}
	if err := t.sweep(ctx, refs, time.Now()); err != nil {
		t.env.Logger.Debug("unknown chains and maps stay for now", "table", t.Table, "error", err)
	}
	t.env.Progress(len(next.Services), len(next.Services))
	return refs, nil
}

// repairs renders the batch of a repair, with all rules. Those of idle chains go: the chains may be needed again
// before they are deleted, and are written anew then.
func (t *Table) repairs(b *batch, next *plan.Plan) *knftables.Transaction {
	tx := t.nft.NewTransaction()
	t.base(tx, next.Node, baseOptions{})
	for id := range b.refs.idle {
		if id.Kind == ChainObject {
			tx.Flush(t.chain(id))
		}
	}
	b.writeTo(tx)
	return tx
}
