package nodeinfo

import (
	"net/netip"
	"slices"
	"testing"
	"time"
)

// Host lists the gateways of all default routes. The Watcher announces a change even if only the gateways change.
func TestGateways(t *testing.T) {
	l := newLab(t, append(veth, "addr add 192.0.2.1/24 dev v0", "addr add 2001:db8::1/64 dev v0 nodad")...)
	for _, step := range []struct {
		ip   string
		want []string
	}{
		{"route add default via 192.0.2.254", []string{"192.0.2.254"}},
		{"route add default via 192.0.2.253 metric 9", []string{"192.0.2.253", "192.0.2.254"}},
		{"route add 203.0.113.0/24 via 192.0.2.2", []string{"192.0.2.253", "192.0.2.254"}},
		{"-6 route add default nexthop via 2001:db8::fe nexthop via fe80::1 dev v0", []string{"192.0.2.253", "192.0.2.254", "2001:db8::fe", "fe80::1"}},
		{"-4 route del default metric 9", []string{"192.0.2.254", "2001:db8::fe", "fe80::1"}},
		{"-4 route replace default via inet6 2001:db8::fd dev v0", []string{"2001:db8::fd", "2001:db8::fe", "fe80::1"}},
		{"-4 route replace default dev v0", []string{"2001:db8::fe", "fe80::1"}},
		{"link set v0 down", nil},
	} {
		l.ip(step.ip)
		deadline := time.After(30 * time.Second)
		for got := texts(l.Host().Gateways); !slices.Equal(got, step.want); got = texts(l.Host().Gateways) {
			select {
			case <-l.Changed():
			case <-deadline:
				t.Fatalf("after %q: got %v, want %v", step.ip, got, step.want)
			}
		}
	}
}

// Host lists the networks of the host's interfaces, but not link-local networks or the networks of the loopback device.
// For a point-to-point address, Host lists both ends.
func TestNetworks(t *testing.T) {
	l := newLab(t, append(veth, "addr add 10.96.0.10/16 dev lo")...)
	for _, step := range []struct {
		ip   string
		want []string
	}{
		{"addr add 192.0.2.1/24 dev v0", []string{"192.0.2.0/24"}},
		{"addr add 10.8.0.1 peer 10.9.0.2/32 dev v0", []string{"10.8.0.1/32", "10.9.0.2/32", "192.0.2.0/24"}},
		{"addr del 10.8.0.1 peer 10.9.0.2/32 dev v0", []string{"192.0.2.0/24"}},
		{"addr add 2001:db8::1/64 dev v0 nodad", []string{"192.0.2.0/24", "2001:db8::/64"}},
		{"link set v0 down", nil},
	} {
		l.ip(step.ip)
		networks := func() (out []string) {
			for _, n := range l.Host().Networks {
				out = append(out, n.String())
			}
			return out
		}
		deadline := time.After(30 * time.Second)
		for got := networks(); !slices.Equal(got, step.want); got = networks() {
			select {
			case <-l.Changed():
			case <-deadline:
				t.Fatalf("after %q: got %v, want %v", step.ip, got, step.want)
			}
		}
	}
}

func texts(addrs []netip.Addr) (out []string) {
	for _, a := range addrs {
		out = append(out, a.String())
	}
	return out
}
