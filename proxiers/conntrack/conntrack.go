// Package conntrack deletes connection-tracking entries that become stale when Services change.
//
// The kernel translates a flow's first packet according to the backend's rules. The kernel translates all later packets
// according to the flow's entry in the connection-tracking table. A UDP flow lasts as long as its client keeps sending.
// Without this package, a UDP client of a removed endpoint would never receive another response, and a client that sent
// packets before the Service existed would never reach the Service. SCTP clients (S1AP, NGAP, Diameter) commonly keep
// their source port. After an SCTP association ends, the client's next association therefore matches the old entry.
//
// The follower keeps the entries of TCP connections, because a draining connection would break without its entry. If a
// TCP connection's endpoint no longer exists, a router or the kernel on the endpoint's host resets the connection. The
// client's next attempt uses another source port and therefore another entry. The follower deletes a TCP connection's
// entry only if the client opened the connection while the kernel had no rules. The kernel has no rules at boot or
// after another program has removed them. If a client sends a SYN before the rules exist, the kernel does not translate
// the client's retransmissions for two minutes, because they match the SYN's entry.
//
// Whether a flow is stale depends on its original and real destinations. The original destination, an address and a
// port, identifies a frontend in the plan. The follower ignores flows to a frontend's port at other addresses. The real
// destination is the source address and port in the reply direction. A flow is stale unless its real destination is an
// endpoint that still serves connections.
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

// Name is the conntrack follower's name.
const Name = "conntrack"

// Component describes the conntrack follower, which must run after the backend. If the follower deleted a stale entry
// before the backend changed the rules, the next packet would create the same entry again. The follower's Proxier
// implements prometheus.Collector.
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
	// lastPlan is the plan that Apply last applied successfully, or nil after a daemon restart. A full sync compares
	// the next plan with lastPlan to find the removed frontends. If lastPlan is nil, the follower cannot find the
	// frontends of earlier plans.
	lastPlan *plan.Plan
	// socket is a netlink socket that the follower opens on first use and then keeps open. Closing a netfilter socket
	// blocks until the kernel (Linux 6.18) has freed the objects that nftables transactions deleted. After an nftables
	// transaction, closing the socket takes 16 ms. If a request fails or is aborted, the follower closes the socket,
	// which may contain unread responses, and sets socket to nil.
	socket *netlink.Conntrack
}

// Apply deletes stale flows. Apply reads the kernel's connection-tracking table only if the change may have made flows
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
		return fmt.Errorf("connection tracking cleanup: %w", err)
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
	// If ctx is already done, AbortOnDone aborts requests only after a short delay, because it uses context.AfterFunc.
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
