package serviceroutes

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"time"

	"github.com/vishvananda/netlink"

	"edgeway/proxiers"
	"edgeway/proxiers/messageid"
	"edgeway/proxiers/plan"
)

type route struct {
	to   netip.Prefix
	from netip.Addr
	link int
}

// refresh compares the kernel's routes with the wanted routes, and corrects the differences.
func (f *follower) refresh(ctx context.Context) error {
	f.mu.Lock()
	// An event during the refresh schedules another refresh.
	f.nextRefresh, f.removedRoute, f.lastRefresh = time.Time{}, netip.Prefix{}, time.Now()
	f.mu.Unlock()
	want, err := f.wantedRoutes(ctx)
	if err != nil {
		return err
	}
	own, err := f.kernel.ownRoutes(f.env.Families)
	if err != nil {
		return err
	}
	have, changed, extra := compare(own, want)
	f.mu.Lock()
	f.presentRoutes = have
	f.mu.Unlock()
	added := 0
	for to, r := range want {
		if have[to] == r {
			continue
		}
		if err := f.put(ctx, r, changed[to]); err != nil {
			return err
		}
		added++
	}
	for i := range extra {
		if err := errors.Join(ctx.Err(), f.kernel.remove(extra[i])); err != nil {
			return err
		}
	}
	if added+len(extra) > 0 {
		f.env.Logger.InfoContext(ctx, "routes to Services changed", "written", added, "removed", len(extra))
	}
	f.warn(len(want) > 0)
	return nil
}

// warn logs once that some addresses have no route because the plan has more than maxAddrs addresses.
func (f *follower) warn(routes bool) {
	over := routes && f.destinations.overflow > 0
	if over && !f.warned {
		f.env.Logger.Warn("too many Service addresses, some have no route",
			"message_id", messageid.TooManyServiceRoutes, "routes", len(f.destinations.addrs))
	}
	f.warned = over
}

// compare returns the wanted routes that already exist, the destinations whose existing routes differ from the wanted
// routes, and the routes to remove.
func compare(own []netlink.Route,
	want map[netip.Prefix]route,
) (have map[netip.Prefix]route, changed map[netip.Prefix]bool, extra []netlink.Route) {
	have, changed = map[netip.Prefix]route{}, map[netip.Prefix]bool{}
	for _, raw := range own {
		r, ok := parse(raw)
		w, wanted := want[r.to]
		switch {
		case !ok || !wanted:
			extra = append(extra, raw)
		case r == w:
			have[r.to] = r
		default:
			changed[r.to] = true
		}
	}
	return have, changed, extra
}

// applyChange reads and writes only the routes to added and removed addresses.
func (f *follower) applyChange(ctx context.Context, change proxiers.Change) error {
	f.mu.Lock()
	fresh, gone := f.destinations.update(change)
	f.mu.Unlock()
	for _, u := range f.uplinks {
		link := -1 // unknown
		for _, a := range fresh {
			if plan.FamilyOf(a) != plan.FamilyOf(u.Addr) {
				continue
			}
			var err error
			if link < 0 {
				if link, err = f.kernel.linkIndex(u.Interface); err != nil {
					return err
				}
			}
			if err := f.addRoute(ctx, route{single(a), u.Addr, link}); err != nil {
				return err
			}
		}
	}
	for _, a := range gone {
		r, ours := f.presentRoutes[single(a)]
		if !ours {
			continue
		}
		f.mu.Lock()
		delete(f.presentRoutes, r.to) // before the removal, so that the kernel's notification does not count as drift
		f.mu.Unlock()
		if err := f.kernel.remove(*r.netlink()); err != nil {
			return err
		}
	}
	f.warn(len(f.presentRoutes) > 0)
	return nil
}

func (f *follower) addRoute(ctx context.Context, r route) error {
	if r.link == 0 {
		return nil
	}
	if found, err := f.kernel.hasForeignRoute(r.to); err != nil || found {
		return err
	}
	return f.put(ctx, r, false)
}

func (f *follower) put(ctx context.Context, r route, replace bool) error {
	if err := errors.Join(ctx.Err(), f.kernel.put(r, replace)); err != nil {
		return err
	}
	f.mu.Lock()
	f.presentRoutes[r.to] = r
	f.mu.Unlock()
	return nil
}

// wantedRoutes returns the routes that the follower must maintain. While the plan's uplink for a family is down, the
// family has no wanted routes.
func (f *follower) wantedRoutes(ctx context.Context) (map[netip.Prefix]route, error) {
	want := map[netip.Prefix]route{}
	for _, u := range f.uplinks {
		link, err := f.kernel.linkIndex(u.Interface)
		if err != nil {
			return nil, err
		}
		if link == 0 {
			continue
		}
		needed, err := f.neededDestinations(ctx, plan.FamilyOf(u.Addr))
		if err != nil {
			return nil, err
		}
		for _, to := range needed {
			want[to] = route{to, u.Addr, link}
		}
	}
	return want, nil
}

// neededDestinations returns the destinations to which no other program has a route. If f.always is true, the result
// also contains all ranges. neededDestinations first reads the main routing table, where it can distinguish Edgeway's
// routes from those of other programs. For each remaining destination, a route lookup by the kernel shows whether
// another routing table has a route.
func (f *follower) neededDestinations(ctx context.Context, family plan.Family) (out []netip.Prefix, err error) {
	all := f.destinations.of(family)
	if len(all) == 0 {
		return nil, nil
	}
	others, err := f.kernel.listForeign(family, f.destinations.touches)
	if err != nil {
		return nil, err
	}
	for _, to := range all {
		if f.always && slices.Contains(f.destinations.ranges, to) {
			out = append(out, to)
			continue
		}
		if others.covers(to) {
			continue
		}
		found, err := f.kernel.hasForeignRoute(to)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return nil, err
		}
		if !found {
			out = append(out, to)
		}
	}
	return out, nil
}

// linksAreUp reports whether all uplinks are up. When a link goes down, the kernel itself removes the link's routes.
func (f *follower) linksAreUp() bool {
	for _, u := range f.uplinks {
		if link, err := f.kernel.linkIndex(u.Interface); err != nil || link == 0 {
			return false
		}
	}
	return true
}
