package nodeinfo

import (
	"log/slog"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

func TestPreferredSource(t *testing.T) {
	ip := netip.MustParseAddr
	on := func(link int, cidr string, flags int) address {
		p := netip.MustParsePrefix(cidr)
		return address{addr: p.Addr(), prefix: p.Masked(), link: link, flags: flags}
	}
	local := on(1, "127.0.0.1/8", 0)
	local.scope = unix.RT_SCOPE_HOST
	for name, c := range map[string]struct {
		routes []route
		addrs  []address
		want   string // want is "" if there is no source
	}{
		"no route": {nil, []address{on(2, "10.0.0.1/24", 0)}, ""},
		"first address of the interface": {
			[]route{{link: 2}}, []address{
				local, on(3, "10.0.3.1/24", 0), on(2, "10.0.0.1/24", 0),
				on(2, "10.0.1.1/24", 0),
			}, "10.0.0.1",
		},
		"gateway's network": {
			[]route{{link: 2, gateway: ip("10.0.1.254")}},
			[]address{on(2, "10.0.0.1/24", 0), on(2, "10.0.1.1/24", 0)},
			"10.0.1.1",
		},
		"secondary never": {
			[]route{{link: 2}},
			[]address{on(2, "10.0.0.2/24", unix.IFA_F_SECONDARY), on(2, "10.0.0.1/24", 0)},
			"10.0.0.1",
		},
		"source of the route, on another interface": {
			[]route{{link: 2, source: ip("10.9.9.9")}},
			[]address{on(2, "10.0.0.1/24", 0), on(1, "10.9.9.9/32", 0)},
			"10.9.9.9",
		},
		"next route when the first interface is bare": {
			[]route{{link: 2}, {link: 3}}, []address{on(4, "10.0.4.1/24", 0), on(3, "10.0.3.1/24", 0)}, "10.0.3.1",
		},
		"any global address when all are bare": {
			[]route{{link: 2}}, []address{local, on(4, "10.0.4.1/32", 0)}, "10.0.4.1",
		},
		"only the family's": {
			[]route{{link: 2}}, []address{on(2, "2001:db8::1/64", 0)}, "",
		},
		"IPv6: stable before temporary": {
			[]route{{is6: true, link: 2}}, []address{
				on(2, "2001:db8::2/64", unix.IFA_F_TEMPORARY),
				on(2, "2001:db8::1/64", 0),
			}, "2001:db8::1",
		},
		"IPv6: global before unique local": {
			[]route{{is6: true, link: 2}}, []address{on(2, "fd00::1/64", 0), on(2, "2001:db8::1/64", 0)}, "2001:db8::1",
		},
		"IPv6: deprecated last": {
			[]route{{is6: true, link: 2}}, []address{
				on(2, "2001:db8::1/64", unix.IFA_F_DEPRECATED),
				on(2, "fd00::1/64", 0),
			}, "fd00::1",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := preferredSource(c.routes, c.addrs)
			if !ok && c.want == "" {
				return
			}
			if !ok || got.addr.String() != c.want {
				t.Errorf("got %v (%v), want %q", got.addr, ok, c.want)
			}
		})
	}
}

func TestRelevantMessages(t *testing.T) {
	family := byte(unix.AF_INET)
	w := New(slog.New(slog.DiscardHandler), Options{Ranges: serviceRanges, IgnoreProtocol: ownProtocol})
	for name, c := range map[string]struct {
		kind uint16
		data []byte
		want bool
	}{
		"address":       {unix.RTM_NEWADDR, []byte{family, 24}, true},
		"link":          {unix.RTM_DELLINK, nil, true},
		"default route": {unix.RTM_DELROUTE, rtmsg(0, unix.RTPROT_BOOT, 0, 0, 0, 0), true},
		"other route":   {unix.RTM_NEWROUTE, rtmsg(24, unix.RTPROT_BOOT, 10, 95, 0, 0), false},
		"of a range":    {unix.RTM_NEWROUTE, rtmsg(8, unix.RTPROT_BOOT, 10, 0, 0, 0), true},
		"in the range":  {unix.RTM_DELROUTE, rtmsg(24, unix.RTPROT_BOOT, 10, 96, 1, 0), true},
		"our own":       {unix.RTM_NEWROUTE, rtmsg(16, ownProtocol, 10, 96, 0, 0), false},
		"of a network":  {unix.RTM_NEWROUTE, rtmsg(16, unix.RTPROT_KERNEL, 10, 96, 0, 0), false},
		"half of all":   {unix.RTM_NEWROUTE, rtmsg(1, unix.RTPROT_BOOT, 0, 0, 0, 0), false},
		"stub":          {unix.RTM_NEWROUTE, []byte{family}, false},
	} {
		if got := w.isRelevant(c.kind, c.data); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func rtmsg(bits, protocol byte, to ...byte) []byte {
	header := []byte{unix.AF_INET, bits, 0, 0, unix.RT_TABLE_MAIN, protocol, 0, unix.RTN_UNICAST, 0, 0, 0, 0}
	return append(append(header, 8, 0, unix.RTA_DST, 0), to...)
}

func TestUsableFlags(t *testing.T) {
	for flags, want := range map[int]bool{
		unix.IFA_F_PERMANENT:                         true,
		unix.IFA_F_TENTATIVE:                         false,
		unix.IFA_F_TENTATIVE | unix.IFA_F_OPTIMISTIC: true,
		unix.IFA_F_TENTATIVE | unix.IFA_F_DADFAILED:  false,
		unix.IFA_F_DADFAILED:                         false,
	} {
		if got := isUsable(flags); got != want {
			t.Errorf("flags %#x: %v", flags, got)
		}
	}
}
