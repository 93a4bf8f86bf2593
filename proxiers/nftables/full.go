package nftables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfnetlink"
	"edgeway/proxiers/plan"
)

// applyFull makes tables of unknown content agree with the plan. Where they exist, what is already
// served stays served: the difference is one transaction.
func (p *proxier) applyFull(ctx context.Context, next *plan.Plan) error {
	for _, name := range next.Node.PodInterfaces {
		if err := checkInterface(name); err != nil {
			return err
		}
	}
	p.renderer.podInterfaces = next.Node.PodInterfaces
	p.monitor.Forget()
	p.ledger = newLedger()
	c, err := dialNetfilter()
	if err != nil {
		return err
	}
	defer c.Close()
	present, err := c.tables(tableName)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(p.renderer.families, func(f plan.Family) bool { return slices.Contains(present, nfnetlink.Family(f)) }) {
		return p.build(ctx, next)
	}
	err = p.repair(ctx, c, next)
	if !refused(err) && !errors.Is(err, errUnreadable) {
		return err
	}
	p.logger.Warn("nftables table is written anew as a whole", "error", err)
	return p.recreate(ctx, next)
}

// build fills tables that do not exist, in chunks. Each chunk is complete in itself, and addresses
// of the Service CIDRs that are still to come are dropped, which clients answer by trying again; in a
// takeover they are left to the other backend.
func (p *proxier) build(ctx context.Context, next *plan.Plan) error {
	rest, node := next.Services, *next.Node
	if p.takeover {
		node.ServiceCIDRs = nil
	}
	for first := true; first || len(rest) > 0; first = false {
		tx := p.renderer.nft.NewTransaction()
		if first {
			p.renderer.base(tx, &node, false)
			p.renderer.addNode(tx, &node)
		}
		rest = p.renderer.chunk(tx, p.ledger, rest, chunkSize)
		if len(rest) == 0 && p.takeover {
			p.renderer.addRanges(tx, next.Node)
		}
		if err := p.commit(ctx, tx); err != nil {
			return fullError("first sync", err)
		}
		p.progress(len(next.Services)-len(rest), len(next.Services))
	}
	return nil
}

// recreate replaces the tables as a whole in one transaction. What clients learned is lost.
func (p *proxier) recreate(ctx context.Context, next *plan.Plan) error {
	p.ledger = newLedger()
	tx := p.renderer.nft.NewTransaction()
	p.renderer.base(tx, next.Node, true)
	p.renderer.addNode(tx, next.Node)
	p.renderer.chunk(tx, p.ledger, next.Services, len(next.Services))
	if err := p.commit(ctx, tx); err != nil {
		return fullError("new tables", err)
	}
	p.progress(len(next.Services), len(next.Services))
	return nil
}

func fullError(what string, err error) error {
	if refused(err) {
		return fmt.Errorf("%s: %w: %w", what, proxiers.ErrRefused, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// repair compares the tables with the plan and writes the difference, and all rules.
func (p *proxier) repair(ctx context.Context, c *nfConn, next *plan.Plan) error {
	r := p.renderer
	b := newBatch(r, p.ledger, time.Time{})
	b.created = r.enlist(p.ledger, next)
	for _, f := range r.families {
		list, err := c.objects(f, r.table)
		if err != nil {
			return err
		}
		for _, id := range r.unknown(p.ledger, list) {
			p.ledger.idle[id] = idleness{}
		}
	}
	differing, err := r.compare(c, p.ledger, next)
	if err != nil {
		return err
	}
	b.reconcile(differing, next)
	tx := r.nft.NewTransaction()
	r.base(tx, next.Node, false)
	for id := range p.ledger.idle {
		if id.kind == chainObject {
			tx.Flush(r.chain(id))
		}
	}
	b.writeTo(tx)
	if err := p.commit(ctx, tx); err != nil {
		return fmt.Errorf("repair: %w", err)
	}
	p.sweep(ctx, time.Now())
	p.progress(len(next.Services), len(next.Services))
	return nil
}
