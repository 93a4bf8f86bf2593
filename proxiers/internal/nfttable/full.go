package nfttable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// maxReplaced is the maximum number of elements in a transaction that replaces the tables. nft uses 220 MB of memory
// for 100,000 elements.
const maxReplaced = 100_000

// applyFull brings tables with unknown contents into agreement with the plan, and repairs existing tables in place,
// without interrupting connections to unchanged Services.
func (t *Table) applyFull(ctx context.Context, next *plan.Plan) (*references, error) {
	t.watcher.Forget()
	present, err := t.kernel.tableFamilies(t.Table)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(t.families,
		func(f plan.Family) bool { return slices.Contains(present, netlink.Family(f)) }) {
		return t.build(ctx, next)
	}
	refs, err := t.repair(ctx, next)
	if !isContentError(err) && !errors.Is(err, errUnreadable) {
		return refs, err
	}
	elements := 0
	t.eachNeeds(newReferences(), next, func(n *Needs) { elements += len(n.entries) + len(n.shared) })
	if elements > maxReplaced && (errors.Is(err, unix.EEXIST) || errors.Is(err, netlink.ErrTooBig)) {
		return nil, syncError("full sync", err) // the kernel rejected elements of the plan, so new tables do not help
	}
	t.env.Logger.Warn("rewriting the whole nftables table", "table", t.Table, "error", err)
	return t.recreate(ctx, next, elements)
}

// build writes new tables in self-contained chunks. Until Edgeway has written a Service, a packet to the Service
// matches only the interval sets, such as the Service CIDRs. The rules for the interval sets drop packets to unused
// addresses, and the clients retry. In a takeover, build writes the ranges with Range.FillLast in the last chunk,
// because the other backend serves the Services that Edgeway has not written yet.
func (t *Table) build(ctx context.Context, next *plan.Plan) (*references, error) {
	b := t.batch(ctx, newReferences(), time.Time{}, false)
	err := b.fillTables(next, baseOptions{takeover: t.env.Takeover},
		func(done int) { t.env.Progress(done, len(next.Services)) })
	if err != nil {
		return nil, syncError("first sync", err)
	}
	t.env.Progress(len(next.Services), len(next.Services))
	return b.refs, nil
}

// recreate replaces whole tables. Replacing a table deletes the map elements that rules in the packet path added. If
// one transaction cannot contain all elements, recreate uses several transactions, and some Services are briefly
// unavailable.
func (t *Table) recreate(ctx context.Context, next *plan.Plan, elements int) (*references, error) {
	b := t.batch(ctx, newReferences(), time.Time{}, false)
	if elements <= maxReplaced {
		b = newBatch(t.renderer, b.refs, time.Time{})
	}
	err := b.fillTables(next, baseOptions{fresh: true}, nil)
	if err == nil && b.send == nil {
		err = t.commit(ctx, b.tx)
	}
	if err != nil {
		return nil, syncError("new tables", err)
	}
	t.env.Progress(len(next.Services), len(next.Services))
	return b.refs, nil
}

// syncError prefixes an error with the kind of sync, and also wraps ErrRefused if the kernel rejected the transaction's
// content.
func syncError(what string, err error) error {
	if isContentError(err) {
		return fmt.Errorf("%s: %w: %w", what, proxiers.ErrRefused, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// repair compares the tables with the plan and writes all rules and the elements that differ.
func (t *Table) repair(ctx context.Context, next *plan.Plan) (*references, error) {
	refs := newReferences()
	b := t.batch(ctx, refs, time.Time{}, false)
	b.created = t.addReferences(refs, next)
	for _, f := range t.families {
		list, err := t.kernel.objects(f, t.Table)
		if err != nil {
			return nil, err
		}
		for _, id := range t.unknownObjects(refs, list) {
			refs.idleObjects[id] = idleness{}
		}
	}
	differing, err := t.compare(t.kernel, refs, next)
	if err != nil {
		return nil, err
	}
	t.renderBase(b.tx, next.Node, baseOptions{})
	if err = b.reconcile(differing, next); err == nil {
		err = b.flush()
	}
	if err == nil {
		err = t.flushIdleChains(ctx, refs)
	}
	if err != nil {
		return nil, fmt.Errorf("repair: %w", err)
	}
	if err := t.sweep(ctx, refs, time.Now()); err != nil {
		t.env.Logger.Debug("cannot delete unknown chains and maps, retrying later", "table", t.Table, "error", err)
	}
	t.env.Progress(len(next.Services), len(next.Services))
	return refs, nil
}

// flushIdleChains deletes the rules in idle chains, which no element or rule refers to. An idle chain may be a base
// chain that another Edgeway version or another program created. Without the flush, a base chain's rules would affect
// packets until sweep can delete the chain.
func (t *Table) flushIdleChains(ctx context.Context, refs *references) error {
	tx := newTransaction()
	for id := range refs.idleObjects {
		if id.Kind == ChainObject {
			tx.Flush(t.chain(id))
		}
	}
	if err := t.commit(ctx, tx); !errors.Is(err, netlink.ErrNoEffect) { // the chains may already be empty
		return err
	}
	return nil
}
