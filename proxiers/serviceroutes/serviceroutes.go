// Package serviceroutes maintains routes to the addresses of Services on hosts that have no such routes.
//
// The kernel looks up a route before it translates a packet. On a host without a default route, connecting to a
// ClusterIP therefore fails with "network is unreachable", and no packet reaches the backend's rules
// (kubernetes/kubernetes#123120, #130057). Any route to the ClusterIP is enough. The next hop does not matter, because
// the kernel translates the packet, and looks up the route again, before the packet leaves.
//
// The routes are in the main routing table. Edgeway recognizes its routes by their routing protocol number. Their
// metric is so high that any other route to the same destination takes precedence. The routes lead to an interface that
// is up, not to lo. On lo, IPv6 accepts only routes that reject (Linux 6.18, fib6_is_reject). TCP would announce
// segments of 65,495 bytes on lo. A forwarded packet that no rule translates would loop on lo until its hop limit is
// used up.
package serviceroutes

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/proxiers/rtnl"
)

// Name is the name of the follower.
const Name = "serviceroutes"

// Component describes the follower. The follower maintains routes to the ranges and addresses of Services for which the
// kernel has no route. With always, the follower maintains routes to all ranges. The follower adds no route to other
// addresses that have a route, because the existing route may serve other destinations too. ignored holds the numbers
// (below 256) of routing tables whose changes the follower ignores. Backends maintain these tables, and the host's own
// packets never use the tables.
func Component(always bool, ignored []int) proxiers.Component {
	return proxiers.Component{
		Name: Name,
		New: func(_ context.Context, env proxiers.Env) (proxiers.Proxier, error) {
			kernel, err := openKernel()
			if err != nil {
				return nil, err
			}
			return newFollower(env, kernel, always, ignored), nil
		},
		Cleanup: cleanup,
	}
}

// follower maintains the routes. Other goroutines also read the fields below mu, which are written with mu held.
type follower struct {
	env     proxiers.Env
	always  bool
	ignored []int
	kernel  *kernel
	// warned is set if warn has logged that addresses are left out.
	warned bool

	network  *rtnl.Watcher
	watching sync.WaitGroup
	// end stops the watcher. end is nil until watch is called.
	end context.CancelFunc

	mu      sync.Mutex
	uplinks []plan.Uplink
	places  *places
	// have holds the wanted routes that exist in the kernel.
	have map[netip.Prefix]route
	// looked is the time of the last check of all routes, and due is the time of the next check. lost is the
	// destination of a removed route.
	looked, due time.Time
	lost        netip.Prefix
}

func newFollower(env proxiers.Env, kernel *kernel, always bool, ignored []int) *follower {
	f := &follower{env: env, always: always, ignored: ignored, kernel: kernel, places: &places{}}
	f.network = rtnl.New(rtnl.Options{
		Logger: env.Logger, Topics: rtnl.Links | rtnl.Addresses | rtnl.Routes | rtnl.Rules,
		Note: f.note, Lost: func() { f.look(netip.Prefix{}) },
	})
	return f
}

// Apply implements proxiers.Applier.
func (f *follower) Apply(ctx context.Context, change proxiers.Change) error {
	if err := f.watch(); err != nil {
		return err
	}
	node := change.Next.Node
	if prev := change.Prev; prev != nil && slices.Equal(prev.Node.ServiceCIDRs, node.ServiceCIDRs) &&
		slices.Equal(prev.Node.Uplinks, node.Uplinks) {
		return f.step(ctx, change)
	}
	all := newPlaces(change.Next)
	f.mu.Lock()
	f.uplinks, f.places = node.Uplinks, all
	f.mu.Unlock()
	return f.refresh(ctx)
}

// Due implements proxiers.Maintainer.
func (f *follower) Due() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.due
}

// Maintain checks all routes after a relevant event. If a route of Edgeway was removed while its interface stayed up,
// Maintain reports drift.
func (f *follower) Maintain(ctx context.Context) error {
	f.mu.Lock()
	lost := f.lost
	f.due, f.lost = time.Time{}, netip.Prefix{}
	f.mu.Unlock()
	if lost.IsValid() && f.linksAreUp() {
		f.env.Drift("the route to " + lost.String() + " was removed")
		return nil
	}
	err := f.refresh(ctx)
	if err != nil {
		f.mu.Lock()
		f.due = time.Now().Add(retry)
		f.mu.Unlock()
	}
	return err
}

// Close stops the follower and keeps the routes.
func (f *follower) Close() error {
	if f.end != nil {
		f.end()
	}
	f.watching.Wait()
	f.kernel.Close()
	return nil
}

// cleanup removes the routes of all versions of Edgeway.
func cleanup(ctx context.Context, env proxiers.Env) error {
	kernel, err := openKernel()
	if err != nil {
		return err
	}
	defer kernel.Close()
	own, err := kernel.own(env.Families)
	if err != nil {
		return err
	}
	for i := range own {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := kernel.remove(own[i]); err != nil {
			return err
		}
	}
	return nil
}
