package nfttable

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
)

// elementRoom is the space in the socket's buffer for each element of a chunk, in bytes. An element has at most 400
// bytes (an IPv6 key, a chain name, and a comment), and a batch may contain up to three chunks. Without CAP_NET_ADMIN
// in the initial user namespace, as in an unprivileged container, the socket accepts batches of at most 416 KiB. With
// batches of 416 KiB, a chunk has 266 elements.
const elementRoom = 1600

// Table manages the tables for all families. Table implements proxiers.Proxier and proxiers.Maintainer.
type Table struct {
	*renderer
	env      proxiers.Env
	nft      *Program
	kernel   *reader
	watcher  *netlink.Watcher
	watching sync.WaitGroup
	// netlinkBatch holds the elements for the next netlink transaction.
	netlinkBatch netlink.Batch
	// refs holds the references of the last applied plan, or nil if the kernel's state is unknown.
	refs *references
	// netlinkCount and programCount count the transactions that the Table has sent through netlink and through nft.
	netlinkCount, programCount atomic.Uint64
}

// New opens sockets in the calling thread's network namespace, but changes nothing in the kernel.
func New(s Schema, env proxiers.Env) (*Table, error) {
	nft, err := FindProgram()
	if err != nil {
		return nil, err
	}
	t := &Table{renderer: newRenderer(s, env.Families, env.MasqueradeBit), env: env, nft: nft}
	t.watcher, err = netlink.NewWatcher(netlink.WatcherOptions{Notify: env.Drift, AffectedObject: t.affectedObject})
	if err != nil {
		return nil, fmt.Errorf("subscription to nftables notifications: %w", err)
	}
	t.kernel = &reader{t.watcher.Conn}
	t.chunkSize = min(t.chunkSize, t.kernel.MaxBatchSize/elementRoom)
	env.Contain.Go(&t.watching, "nftables notices", t.watcher.Run)
	return t, nil
}

// Apply implements proxiers.Applier.
func (t *Table) Apply(ctx context.Context, change proxiers.Change) (err error) {
	refs := t.refs
	t.refs = nil
	partial := change.Prev != nil && refs != nil && t.SameRules(t.node, change.Next.Node)
	if partial {
		err = t.batch(ctx, refs, time.Now(), true).addDifference(change)
		if err != nil && !errors.Is(err, netlink.ErrDrift) && !errors.Is(err, errMoves) {
			return syncError("partial sync", err)
		}
	}
	if !partial || err != nil {
		if refs, err = t.applyFull(ctx, change.Next); err != nil {
			return err
		}
	}
	t.refs, t.env.Takeover = refs, false
	return nil
}

// Close implements proxiers.Proxier.
func (t *Table) Close() error {
	err := t.watcher.Close()
	t.watching.Wait()
	return err
}

// Due returns the time when Maintain must delete the first idle object.
func (t *Table) Due() (due time.Time) {
	if t.refs == nil {
		return due
	}
	for _, idle := range t.refs.idleObjects {
		if at := idle.since.Add(t.IdleTimeout); due.IsZero() || at.Before(due) {
			due = at
		}
	}
	return due
}

// Maintain implements proxiers.Maintainer.
func (t *Table) Maintain(ctx context.Context) error {
	if t.refs == nil {
		return nil
	}
	return t.sweep(ctx, t.refs, time.Now().Add(-t.IdleTimeout))
}

// sweep deletes the objects that became idle at or before the given time. If the kernel rejects the deletion, sweep
// keeps the objects for another idle period.
func (t *Table) sweep(ctx context.Context, refs *references, before time.Time) error {
	objects := refs.objectsIdleSince(before)
	if len(objects) == 0 {
		return nil
	}
	err := t.commit(ctx, t.renderer.sweep(objects))
	for _, id := range objects {
		if err != nil {
			refs.idleObjects[id] = idleness{time.Now(), refs.idleObjects[id].intact}
		} else {
			refs.forget(id)
		}
	}
	if err != nil {
		return fmt.Errorf("deletion of unused chains and maps: %w", err)
	}
	return nil
}

// batch returns a batch that sends transactions of limited size: elements through netlink, and all other changes
// through nft. strict has the same meaning as in commitElements.
func (t *Table) batch(ctx context.Context, refs *references, now time.Time, strict bool) *batch {
	b := newBatch(t.renderer, refs, now)
	resetBatch(&t.netlinkBatch) // an earlier error may have left messages in the batch
	b.netlinkBatch = &t.netlinkBatch
	b.send = func(tx *knftables.Transaction) error { return t.commit(ctx, tx) }
	b.sendNetlink = func() error { return t.commitElements(ctx, strict) }
	return b
}

// Transactions returns the number of successful transactions through netlink and through nft, and the number of netlink
// transactions that the kernel rejected as stale. Any goroutine may call Transactions.
func (t *Table) Transactions() (netlink, program, stale uint64) {
	return t.netlinkCount.Load(), t.programCount.Load(), t.watcher.StaleBatches.Load()
}

// Render returns the nft commands that apply a change, for tests of a Schema. A nil change.Prev means that the tables
// do not exist yet.
func Render(s Schema, env proxiers.Env, change proxiers.Change) string {
	r, refs := newRenderer(s, env.Families, env.MasqueradeBit), newReferences()
	b := newBatch(r, refs, time.Now())
	if change.Prev == nil {
		_ = b.fillTables(change.Next, baseOptions{}, nil)
	} else {
		r.node = change.Prev.Node
		r.addReferences(refs, change.Prev)
		_ = b.addDifference(change)
	}
	return b.tx.String()
}
