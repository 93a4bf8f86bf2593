// Package conntrack deletes the connection-tracking entries that a change of Services made stale.
//
// The kernel translates the first packet of a flow according to the rules, and all later packets according to the
// flow's entry in the connection-tracking table. A UDP flow never ends as long as its client keeps sending. So a client
// of a removed endpoint would never get a response again. A client that started before the Service existed would never
// reach the Service. An SCTP association does end, but SCTP clients commonly keep one source port (S1AP, NGAP,
// Diameter), so that a new association matches the old entry.
//
// The follower keeps the entries of TCP connections. If the endpoint is gone, its kernel or a router resets the
// connection, and the client's next attempt uses another source port and so another entry. Deleting the entry of a
// draining connection would break the connection. The exception is a connection that a client opened while the kernel
// had no rules, at boot or after another program removed the rules. Its unanswered SYN leaves an entry that prevents
// the translation of retransmissions for two minutes.
//
// A flow's original destination and real destination decide whether the flow is stale. The original destination must
// match the address and port of a frontend of the plan. The real destination is the source of the reply direction, and
// must be an endpoint that still serves. The follower ignores flows to the same port of other addresses.
package conntrack

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// Name is the name of the follower.
const Name = "conntrack"

// Component describes the follower that cleans up after each change of the plan. The follower must be applied after the
// backend: if an entry were deleted before the rules change, the next packet would create the stale entry again. The
// Proxier is a prometheus.Collector.
func Component() proxiers.Component {
	return proxiers.Component{
		Name: Name,
		New: func(_ context.Context, env proxiers.Env) (proxiers.Proxier, error) {
			return &follower{logger: env.Logger, counts: newCounts(env.Families)}, nil
		},
	}
}

type follower struct {
	logger *slog.Logger
	*counts
	// done is the plan that was in force when the table was last known to be clean. A full sync needs done to find the
	// frontends that were removed since then. After a restart of the daemon, the follower does not know these
	// frontends.
	done *plan.Plan
	// table is opened at the first check, and is nil if a response was not read completely. Closing a netfilter socket
	// blocks until the kernel (6.18) has freed the objects that nftables transactions deleted, 16 ms after a
	// transaction.
	table *netlink.Conntrack
}

// Apply deletes the flows that the change made stale. If a change cannot make flows stale, Apply does not read the
// kernel's table.
func (f *follower) Apply(ctx context.Context, change proxiers.Change) error {
	full := change.Prev == nil
	if full && f.done != nil {
		change = proxiers.NewChange(f.done, change.Next)
	}
	suspects := suspectsOf(change)
	if full {
		suspects.addAll(change.Next)
	}
	if err := f.clean(ctx, suspects); err != nil {
		return fmt.Errorf("clean up connection tracking: %w", err)
	}
	f.done = change.Next
	return nil
}

// Close implements proxiers.Proxier.
func (f *follower) Close() error {
	if f.table != nil {
		f.table.Close()
		f.table = nil
	}
	return nil
}

// clean checks the flows to the suspects.
func (f *follower) clean(ctx context.Context, suspects suspects) error {
	if len(suspects) == 0 {
		return nil
	}
	// context.AfterFunc calls its function after a short delay, even if ctx is already done.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("open connection tracking: %w", err)
	}
	if f.table == nil {
		t, err := netlink.OpenConntrack()
		if err != nil {
			return err
		}
		f.table = t
	}
	release := f.table.During(ctx)
	err := f.deleteStale(ctx, suspects)
	if !release() || err != nil {
		_ = f.Close()
	}
	return err
}

func (f *follower) deleteStale(ctx context.Context, suspects suspects) error {
	for _, family := range []plan.Family{plan.IPv4, plan.IPv6} {
		start, deleted, looked := time.Now(), 0, false
		for _, protocol := range []plan.Protocol{plan.TCP, plan.UDP, plan.SCTP} {
			s := suspects[netlink.Scope{Family: family, Protocol: protocol}]
			if len(s) == 0 {
				continue
			}
			looked = true
			n, err := deleteStale(f.table, netlink.Scope{Family: family, Protocol: protocol}, s)
			deleted += n
			if err != nil {
				return fmt.Errorf("%s %s flows: %w", family, protocol, err)
			}
		}
		if looked {
			f.note(family, deleted, time.Since(start))
		}
		if deleted > 0 {
			f.logger.DebugContext(ctx, "stale flows deleted", "family", family, "flows", deleted)
		}
	}
	return nil
}
