package nodeinfo

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestWayTo(t *testing.T) {
	newLab(t, append(
		veth, "addr add 10.1.0.1/24 dev v0", "addr add fd00:1::1/64 dev v0 nodad", "addr add 10.2.0.1/24 dev v1",
		"route add 10.96.0.0/16 via 10.2.0.254 dev v1", "route add 10.97.0.0/16 dev lo src 10.1.0.1",
		"route add unreachable 10.98.0.0/16",
		"route add 198.18.0.0/15 via 10.1.0.253", "route add 128.0.0.0/1 via 10.1.0.254",
		"-6 route add default via fd00:1::fe",
	)...)
	for to, want := range map[string]struct {
		hop, source string
		byDefault   bool
	}{
		"10.1.0.9":        {"on v0", "10.1.0.1", false},
		"10.2.0.9":        {"on v1", "10.2.0.1", false},
		"10.96.0.10":      {"via 10.2.0.254 on v1", "10.2.0.1", false},
		"10.97.0.10":      {"on lo", "10.1.0.1", false},
		"10.2.0.1":        {"to this host", "10.2.0.1", false},
		"127.0.0.1":       {"to this host", "127.0.0.1", false},
		"fd00:1::9":       {"on v0", "fd00:1::1", false},
		"::ffff:10.1.0.9": {"on v0", "10.1.0.1", false},
		"198.18.0.1":      {"via 10.1.0.253 on v0", "10.1.0.1", false},
		"198.51.100.1":    {"via 10.1.0.254 on v0", "10.1.0.1", true},
		"2001:db8::1":     {"via fd00:1::fe on v0", "fd00:1::1", true},
	} {
		got, err := LookupRoute(netip.MustParseAddr(to))
		if err != nil || got.String() != want.hop || got.Source.String() != want.source ||
			got.Default != want.byDefault {
			t.Errorf("%s: %s from %s, by default %v, %v; want %+v", to, got, got.Source, got.Default, err, want)
		}
	}
	for to, want := range map[string]error{"100.64.0.1": unix.ENETUNREACH, "10.98.0.1": unix.EHOSTUNREACH} {
		if got, err := LookupRoute(netip.MustParseAddr(to)); !errors.Is(err, want) {
			t.Errorf("%s: %s, %v; want %v", to, got, err, want)
		}
	}
}
