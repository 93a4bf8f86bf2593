// Package conntrack deletes the connection-tracking entries that a change of Services made stale.
//
// The kernel translates the first packet of a flow by the rules and all later packets by the flow's entry in the
// connection-tracking table. A UDP flow never ends as long as its client keeps sending. So a client of a removed
// endpoint would never get an answer again, and a client that started before the Service existed would never reach it.
// An SCTP association does end, but its clients commonly keep one source port (S1AP, NGAP, Diameter), so that a new
// association matches the old entry.
//
// TCP connections are kept: the endpoint's kernel, or the router before it, ends the connection with a reset, and the
// client's next attempt has another source port and so another entry. Deleting the entry of a draining connection would
// cut the connection. The exception is a connection that a client opened while there were no rules, at boot or after
// another program removed them: its SYN was not answered and left an entry that prevents the translation of
// retransmissions for two minutes.
//
// A flow is stale depending on its original destination and its real destination. The original destination must be a
// frontend of the plan, address and port. The real destination is the source of the reply direction, and must be an
// endpoint that still serves. No other flows are touched: a flow to the same port number elsewhere is not considered.
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
// backend: an entry deleted before the rules change would be recreated stale. The Proxier is a prometheus.Collector.
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
	// done is the plan after which the table was last known to be clean. A full sync needs this plan to find the
	// frontends that were removed since; after a start these frontends are unknown.
	done *plan.Plan
	// table is opened at the first check, and is nil if an answer was not read completely. Closing a netfilter socket
	// waits until the kernel (6.18) has freed what nftables transactions have deleted, 16 ms after a transaction.
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

// clean checks the flows to suspects, if there are any.
func (f *follower) clean(ctx context.Context, suspects suspects) error {
	if len(suspects) == 0 {
		return nil
	}
	// AfterFunc runs with a short delay, even if ctx has already ended.
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
