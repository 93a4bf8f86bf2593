package nodeinfo

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

const ownProtocol = 119

var serviceRanges = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/108")}

// Host lists, for each range, the widest route through a gateway or a tunnel.
func TestRoutesToRanges(t *testing.T) {
	l := newLab(t, append(veth, "link add t0 type veth peer name t1", "link set t1 addrgenmode none up",
		"link set t0 addrgenmode none arp off up",
		"addr add 192.0.2.1/24 dev v0", "addr add 2001:db8::1/64 dev v0 nodad")...)
	for _, step := range []struct {
		ip   string
		want []string
	}{
		{"route add 10.96.7.0/24 via 192.0.2.7", []string{"10.96.7.0/24 via 192.0.2.7 on v0"}},
		{"route add 10.0.0.0/8 via 192.0.2.8", []string{"10.0.0.0/8 via 192.0.2.8 on v0"}},
		{"-6 route add fd00:96::/64 nexthop via 2001:db8::fe nexthop via 2001:db8::fd", []string{
			"10.0.0.0/8 via 192.0.2.8 on v0", "fd00:96::/64 via 2001:db8::fe on v0",
		}},
		{"-6 route del fd00:96::/64", []string{"10.0.0.0/8 via 192.0.2.8 on v0"}},
		{"route replace 10.0.0.0/8 dev t0", []string{"10.0.0.0/8 on t0"}},
		{"route del 10.0.0.0/8", []string{"10.96.7.0/24 via 192.0.2.7 on v0"}},
		{"route del 10.96.7.0/24", nil},
	} {
		l.ip(step.ip)
		l.wantRoutes(step.ip, step.want)
	}
	// Host omits the following routes because of their type, destination, protocol or routing table.
	for _, args := range []string{
		"route add 10.96.0.0/16 dev v0", "route add blackhole 10.96.128.0/17",
		"route add default via 192.0.2.254", "route add 0.0.0.0/1 via 192.0.2.254",
		"route add 10.0.0.0/8 via 192.0.2.8 proto 119",
		"route add 10.95.0.0/16 via 192.0.2.8", "route add 10.96.7.0/24 via 192.0.2.7 table 98",
	} {
		l.ip(args)
	}
	l.ip("addr add 10.96.5.5/24 dev v0")
	l.wantAddrs("10.96.5.5@v0", "127.0.0.1@lo", "192.0.2.1@v0*", "::1@lo", "2001:db8::1@v0")
	l.wantRoutes("the others", nil)
}

func (l *lab) wantRoutes(after string, want []string) {
	l.Helper()
	deadline := time.After(30 * time.Second)
	for {
		var got []string
		for _, r := range l.Host().Routes {
			got = append(got, r.String())
		}
		if slices.Equal(got, want) {
			return
		}
		select {
		case <-l.Changed():
		case <-deadline:
			l.Fatalf("after %q: routes %q, want %q", after, got, want)
		}
	}
}
