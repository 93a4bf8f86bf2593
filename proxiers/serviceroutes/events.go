package serviceroutes

import (
	"context"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
	"edgeway/proxiers/rtnl"
)

const (
	// checkDelay is the delay between an event and a refresh of Edgeway's routes. When a link goes down, the kernel
	// sends several events, and the daemon may compute a plan with another uplink.
	checkDelay = 100 * time.Millisecond
	// checkInterval is the minimum time between two refreshes of all routes.
	checkInterval = time.Second
	retry         = 5 * time.Second
)

// watch starts receiving rtnetlink notifications. Linux sends no notification about an IPv4 route that disappears with
// its link. Linux may send only one notification about several routes that disappear with their source address.
func (f *follower) watch() error {
	if f.stopWatcher != nil {
		return nil
	}
	if err := f.network.Open(); err != nil {
		return err
	}
	var ctx context.Context
	ctx, f.stopWatcher = context.WithCancel(context.Background())
	f.env.Contain.Go(&f.watching, "route notifications", func() { f.network.Run(ctx) })
	return nil
}

// handle schedules a refresh of Edgeway's routes if a notification is relevant. handle always returns false, because
// scheduleCheck already collects the events.
func (f *follower) handle(m *syscall.NetlinkMessage) bool {
	switch m.Header.Type {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		to, protocol, ok := rtnl.ParseRoute(m.Data)
		own := protocol == Protocol
		removed := m.Header.Type == unix.RTM_DELROUTE
		switch {
		case !ok || own && (!removed || !f.has(to)) || slices.Contains(f.ignored, int(m.Data[4])): // byte 4 of struct rtmsg, rtnetlink(7), is the routing table
		case own:
			f.scheduleCheck(to)
		case f.touches(to):
			f.scheduleCheck(netip.Prefix{})
		}
	case unix.RTM_NEWRULE, unix.RTM_DELRULE:
		f.scheduleCheck(netip.Prefix{})
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		if f.isSource(m.Data) {
			f.scheduleCheck(netip.Prefix{})
		}
	case unix.RTM_NEWLINK:
		if f.wentDown(m.Data) {
			f.scheduleCheck(netip.Prefix{})
		}
	}
	return false
}

// scheduleCheck schedules a refresh of all routes. lost is the destination of an Edgeway route that another program
// removed, or the zero Prefix.
func (f *follower) scheduleCheck(lost netip.Prefix) {
	f.mu.Lock()
	if lost.IsValid() {
		f.removedRoute = lost
	}
	known := !f.nextCheck.IsZero()
	if !known {
		f.nextCheck = time.Now().Add(checkDelay)
		if rested := f.lastCheck.Add(checkInterval); rested.After(f.nextCheck) {
			f.nextCheck = rested
		}
	}
	f.mu.Unlock()
	if !known {
		f.env.Wake()
	}
}

func (f *follower) has(to netip.Prefix) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.presentRoutes[to]
	return ok
}

func (f *follower) touches(to netip.Prefix) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.destinations.touches(to)
}

func (f *follower) isSource(message []byte) bool {
	if len(message) < unix.SizeofIfAddrmsg {
		return false
	}
	attrs, err := nl.ParseRouteAttr(message[unix.SizeofIfAddrmsg:])
	if err != nil {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, a := range attrs {
		// For an IPv4 address with a peer, IFA_LOCAL is the host's address. IPv6 has only IFA_ADDRESS.
		addr, ok := netip.AddrFromSlice(a.Value)
		if ok && (a.Attr.Type == unix.IFA_LOCAL || a.Attr.Type == unix.IFA_ADDRESS) &&
			slices.ContainsFunc(f.uplinks, func(u plan.Uplink) bool { return u.Addr == addr }) {
			return true
		}
	}
	return false
}

func (f *follower) wentDown(message []byte) bool {
	if len(message) < unix.SizeofIfInfomsg {
		return false
	}
	info := nl.DeserializeIfInfomsg(message)
	if info.Flags&unix.IFF_UP != 0 {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.presentRoutes {
		if r.link == int(info.Index) {
			return true
		}
	}
	return false
}
