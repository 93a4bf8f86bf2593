// Package serviceroutes keeps routes to the addresses of Services on hosts that have none.
//
// The kernel looks a route up before it translates: on a host without a default route it answers "network is
// unreachable" to each connection that the host itself opens to a ClusterIP, and no packet ever meets the backend's
// rules (kubernetes/kubernetes#123120, #130057). What is missing is any route at all. Where it leads to does not
// matter: the packet is translated, and looked up once more, before it leaves.
//
// The routes are in the main table, have a routing protocol number of their own, by which they are found again, and a
// metric that any other route to the same place goes before. They lead to an interface that is up and not to lo, on
// which IPv6 takes no route but one that rejects (Linux 6.18, fib6_is_reject), TCP would announce segments of 65,495
// bytes, and a forwarded packet that no rule translates would go round until its hop limit is used up.
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

// Name is the follower's.
const Name = "serviceroutes"

// Component describes the follower. It keeps routes to the ranges and addresses of Services for which the kernel has no
// route, and with always to all ranges. It leaves alone other addresses that have a route, because they may serve more
// than Services. Routes of the tables in ignored, numbers less than 256, are no events: backends keep those tables,
// and the host's own packets never use them.
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

// follower keeps the routes. The fields below mu are read by other goroutines, too, and are written with mu held.
type follower struct {
	env     proxiers.Env
	always  bool
	ignored []int
	kernel  *kernel
	// warned says that the addresses that places.left counts were logged.
	warned bool

	network  *rtnl.Watcher
	watching sync.WaitGroup
	// end ends the watcher's run; nil before watch.
	end context.CancelFunc

	mu      sync.Mutex
	uplinks []plan.Uplink
	places  *places
	// have are the wanted routes that the kernel has.
	have map[netip.Prefix]route
	// looked is the time of the last look at all routes, and due that of the next one. lost is a route that was
	// removed.
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

// Due implements proxiers.Tender.
func (f *follower) Due() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.due
}

// Tend looks at all routes again after an event that may matter. A route of ours that was removed while its interface
// stayed is drift.
func (f *follower) Tend(ctx context.Context) error {
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

// Close leaves the routes.
func (f *follower) Close() error {
	if f.end != nil {
		f.end()
	}
	f.watching.Wait()
	f.kernel.Close()
	return nil
}

// cleanup removes the routes that any version left.
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
