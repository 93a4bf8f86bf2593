package serviceroutes

import (
	"net/netip"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func to(prefix string, change ...func(*netlink.Route)) netlink.Route {
	r := *route{to: netip.MustParsePrefix(prefix)}.netlink()
	r.Priority = 0
	for _, c := range change {
		c(&r)
	}
	return r
}

func kind(k int) func(*netlink.Route)  { return func(r *netlink.Route) { r.Type = k } }
func after(m int) func(*netlink.Route) { return func(r *netlink.Route) { r.Priority = m } }
func dead() func(*netlink.Route)       { return func(r *netlink.Route) { r.Flags = unix.RTNH_F_DEAD } }

func routes(list ...netlink.Route) []netlink.Route { return list }

func TestCovered(t *testing.T) {
	for name, c := range map[string]struct {
		routes []netlink.Route
		place  string
		want   bool
	}{
		"nothing":                          {routes(), "10.96.0.0/16", false},
		"a default route":                  {routes(to("0.0.0.0/0")), "10.96.0.0/16", true},
		"the other family's":               {routes(to("0.0.0.0/0")), "fd00::/112", false},
		"of IPv6":                          {routes(to("::/0")), "fd00::/112", true},
		"the same range":                   {routes(to("10.96.0.0/16")), "10.96.0.0/16", true},
		"a part of the range":              {routes(to("10.96.0.0/17")), "10.96.0.0/16", false},
		"another range":                    {routes(to("10.97.0.0/16")), "10.96.0.0/16", false},
		"the address":                      {routes(to("10.96.0.1/32")), "10.96.0.1/32", true},
		"one that rejects":                 {routes(to("0.0.0.0/0", kind(unix.RTN_UNREACHABLE))), "10.96.0.0/16", false},
		"a longer one rejects":             {routes(to("0.0.0.0/0"), to("10.0.0.0/8", kind(unix.RTN_BLACKHOLE))), "10.96.0.0/16", false},
		"a shorter one rejects":            {routes(to("0.0.0.0/0", kind(unix.RTN_PROHIBIT)), to("10.0.0.0/8")), "10.96.0.0/16", true},
		"a longer one throws":              {routes(to("0.0.0.0/0"), to("10.0.0.0/8", kind(unix.RTN_THROW))), "10.96.0.0/16", false},
		"a dead one is passed over":        {routes(to("0.0.0.0/0"), to("10.0.0.0/8", kind(unix.RTN_BLACKHOLE), dead())), "10.96.0.0/16", true},
		"the lower metric leads":           {routes(to("0.0.0.0/0", kind(unix.RTN_UNREACHABLE), after(200)), to("0.0.0.0/0", after(100))), "10.96.0.0/16", true},
		"the lower metric rejects":         {routes(to("0.0.0.0/0", after(200)), to("0.0.0.0/0", kind(unix.RTN_UNREACHABLE), after(100))), "10.96.0.0/16", false},
		"the lower metric comes first, it": {routes(to("0.0.0.0/0", after(100)), to("0.0.0.0/0", kind(unix.RTN_UNREACHABLE), after(200))), "10.96.0.0/16", true},
	} {
		if got := newForeignRoutes(c.routes).covers(netip.MustParsePrefix(c.place)); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// parse must return the route that route.netlink encoded, and must reject a route with another type, metric, table,
// gateway or TOS.
func TestParseRoundTrip(t *testing.T) {
	for _, r := range []route{
		{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParseAddr("192.0.2.10"), 3},
		{netip.MustParsePrefix("2001:db8::7/128"), netip.MustParseAddr("2001:db8::1"), 4},
	} {
		raw := *r.netlink()
		if got, ok := parse(raw); !ok || got != r {
			t.Errorf("%+v is read as %+v, %v", r, got, ok)
		}
		for _, change := range []func(*netlink.Route){
			kind(unix.RTN_BLACKHOLE), after(1), func(r *netlink.Route) { r.Table = 100 },
			func(r *netlink.Route) { r.Gw = r.Src },
			func(r *netlink.Route) { r.Tos = 8 },
		} {
			other := raw
			change(&other)
			if _, ok := parse(other); ok {
				t.Errorf("%+v is taken for ours", other)
			}
		}
	}
}
