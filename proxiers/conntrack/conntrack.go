// Package conntrack deletes the connection-tracking entries that became stale because Services changed.
//
// The kernel translates the first packet of a flow according to the rules, and all later packets according to the
// flow's entry in the connection-tracking table. A UDP flow never ends as long as its client keeps sending. Without
// this package, a client of a removed endpoint would never receive another response, and a client that started before
// the Service existed would never reach it. An SCTP association does end, but SCTP clients (S1AP, NGAP, Diameter)
// commonly keep their source port, so a new association matches the old entry.
//
// The follower keeps the entries for TCP connections. If the endpoint no longer exists, its kernel or a router resets
// the connection, and the client's next attempt uses another source port and therefore another entry. Without its
// entry, a draining connection would break. The follower deletes the entry only for a TCP connection that a client
// opened while the kernel had no rules, at boot or after another program removed them. An unanswered SYN from before
// the rules existed leaves an entry that prevents the translation of retransmissions for two minutes.
//
// A flow's original and real destinations determine whether it is stale. The original destination selects a frontend in
// the plan by address and port, so the follower ignores flows to the same port on other addresses. The real destination
// is the source address in the reply direction. A flow is stale unless its real destination is an endpoint that still
// serves connections.
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

// Name is the follower's name.
const Name = "conntrack"

// Component describes the follower, which must run after the backend. If the follower deleted an entry before the rules
// changed, the next packet would create the stale entry again. The Proxier is a prometheus.Collector.
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
	// lastPlan is the last plan that the follower has deleted all stale entries for. A full sync compares the next plan
	// with lastPlan to find the removed frontends. After a daemon restart, lastPlan is nil, and the follower cannot
	// find frontends that were removed earlier.
	lastPlan *plan.Plan
	// socket is a netlink socket that stays open after its first use. Closing a netfilter socket would block until the
	// kernel (6.18) has freed the objects that nftables transactions deleted, which takes 16 ms after a transaction.
	// After an incomplete response, the follower closes the socket and sets the field to nil.
	socket *netlink.Conntrack
}

// Apply deletes stale flows. Apply does not read the kernel's connection-tracking table if no flow can have become
// stale.
func (f *follower) Apply(ctx context.Context, change proxiers.Change) error {
	full := change.Prev == nil
	if full && f.lastPlan != nil {
		change = proxiers.NewChange(f.lastPlan, change.Next)
	}
	suspects := rulesFor(change)
	if full {
		suspects.addAll(change.Next)
	}
	if err := f.clean(ctx, suspects); err != nil {
		return fmt.Errorf("clean up connection tracking: %w", err)
	}
	f.lastPlan = change.Next
	return nil
}

func (f *follower) Close() error {
	if f.socket != nil {
		f.socket.Close()
		f.socket = nil
	}
	return nil
}

func (f *follower) clean(ctx context.Context, suspects ruleSet) error {
	if len(suspects) == 0 {
		return nil
	}
	// A function passed to context.AfterFunc starts after a short delay, even if ctx is already done.
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("read connection tracking: %w", err)
	}
	if f.socket == nil {
		t, err := netlink.OpenConntrack()
		if err != nil {
			return err
		}
		f.socket = t
	}
	release := f.socket.AbortOnDone(ctx)
	err := f.deleteStale(ctx, suspects)
	if !release() || err != nil {
		_ = f.Close()
	}
	return err
}

func (f *follower) deleteStale(ctx context.Context, suspects ruleSet) error {
	for _, family := range []plan.Family{plan.IPv4, plan.IPv6} {
		start, deleted, looked := time.Now(), 0, false
		for _, protocol := range []plan.Protocol{plan.TCP, plan.UDP, plan.SCTP} {
			s := suspects[netlink.Scope{Family: family, Protocol: protocol}]
			if len(s) == 0 {
				continue
			}
			looked = true
			n, err := deleteStale(f.socket, netlink.Scope{Family: family, Protocol: protocol}, s)
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
