// Package serviceroutes adds routes for Service addresses that the host has no route to.
//
// The kernel looks up a route before it translates a packet. On a host without a default route, a connection to a
// ClusterIP therefore fails with "network is unreachable" before a packet reaches the backend's rules
// (kubernetes/kubernetes#123120, #130057). Any route to the ClusterIP is enough. The next hop does not matter, because
// the kernel translates the packet and then looks up a route to the endpoint.
//
// Edgeway's routes are in the main routing table and have their own routing protocol number. The metric of Edgeway's
// routes is so high that any other route to the same destination takes precedence. The routes use an interface that is
// up and is not lo. On lo, IPv6 allows only routes that reject packets (Linux 6.18, fib6_is_reject). With a route on
// lo, TCP would announce a maximum segment size of 65,495 bytes. A forwarded packet that no rule translates would also
// loop on lo until its hop limit reached zero.
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

// Name is the serviceroutes follower's name.
const Name = "serviceroutes"

// Component describes the follower. The follower maintains routes to the Service ranges and addresses to which the
// kernel has no route. If always is true, the follower also maintains routes to ranges that already have a route. The
// follower never adds a second route to a single address, because the existing route may cover more destinations.
// ignored holds the numbers (below 256) of the backends' routing tables. The follower ignores changes to the backends'
// routing tables, because the host's own packets never use them.
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

// follower maintains the routes. mu guards the fields below it, which the goroutine that receives notifications also
// uses.
type follower struct {
	env     proxiers.Env
	always  bool
	ignored []int
	kernel  *kernel
	// warned reports whether the last call to warn found too many addresses.
	warned bool

	network  *rtnl.Watcher
	watching sync.WaitGroup
	// stopWatcher stops the watcher, and is nil before the first successful call to watch.
	stopWatcher context.CancelFunc

	mu           sync.Mutex
	uplinks      []plan.Uplink
	destinations *destinations
	// presentRoutes holds the wanted routes that already exist in the kernel.
	presentRoutes map[netip.Prefix]route
	// lastRefresh is the time of the last refresh of all routes, and nextRefresh is the time of the next refresh.
	// removedRoute is the destination of an Edgeway route that another program removed, or the zero Prefix.
	lastRefresh, nextRefresh time.Time
	removedRoute             netip.Prefix
}

func newFollower(env proxiers.Env, kernel *kernel, always bool, ignored []int) *follower {
	f := &follower{env: env, always: always, ignored: ignored, kernel: kernel, destinations: &destinations{}}
	f.network = rtnl.New(rtnl.Options{
		Logger: env.Logger, Topics: rtnl.Links | rtnl.Addresses | rtnl.Routes | rtnl.Rules,
		Note: f.handle, OnLoss: func() { f.scheduleRefresh(netip.Prefix{}) },
	})
	return f
}

func (f *follower) Apply(ctx context.Context, change proxiers.Change) error {
	if err := f.watch(); err != nil {
		return err
	}
	node := change.Next.Node
	if prev := change.Prev; prev != nil && slices.Equal(prev.Node.ServiceCIDRs, node.ServiceCIDRs) &&
		slices.Equal(prev.Node.Uplinks, node.Uplinks) {
		return f.applyChange(ctx, change)
	}
	all := newDestinations(change.Next)
	f.mu.Lock()
	f.uplinks, f.destinations = node.Uplinks, all
	f.mu.Unlock()
	return f.refresh(ctx)
}

func (f *follower) Due() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nextRefresh
}

// Maintain reports drift if an Edgeway route has disappeared although all uplinks are up.
func (f *follower) Maintain(ctx context.Context) error {
	f.mu.Lock()
	lost := f.removedRoute
	f.nextRefresh, f.removedRoute = time.Time{}, netip.Prefix{}
	f.mu.Unlock()
	if lost.IsValid() && f.linksAreUp() {
		f.env.Drift("the route to " + lost.String() + " was removed")
		return nil
	}
	err := f.refresh(ctx)
	if err != nil {
		f.mu.Lock()
		f.nextRefresh = time.Now().Add(retry)
		f.mu.Unlock()
	}
	return err
}

func (f *follower) Close() error {
	if f.stopWatcher != nil {
		f.stopWatcher()
	}
	f.watching.Wait()
	f.kernel.Close()
	return nil
}

func cleanup(ctx context.Context, env proxiers.Env) error {
	kernel, err := openKernel()
	if err != nil {
		return err
	}
	defer kernel.Close()
	own, err := kernel.ownRoutes(env.Families)
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
