package rtnl

import (
	"encoding/binary"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ParseRoute returns the destination and the routing protocol of a route from a notice. The notice consists of struct
// rtmsg and attributes. ParseRoute returns false for an entry of the routing cache.
func ParseRoute(message []byte) (to netip.Prefix, protocol uint8, ok bool) {
	if len(message) < unix.SizeofRtMsg {
		return to, 0, false
	}
	family, bits, protocol := message[0], int(message[1]), message[5]
	if binary.NativeEndian.Uint32(message[8:])&unix.RTM_F_CLONED != 0 {
		return to, 0, false
	}
	addr := netip.IPv4Unspecified()
	switch family {
	case unix.AF_INET:
	case unix.AF_INET6:
		addr = netip.IPv6Unspecified()
	default:
		return to, 0, false
	}
	attrs, err := nl.ParseRouteAttr(message[unix.SizeofRtMsg:])
	if err != nil {
		return to, 0, false
	}
	for _, a := range attrs {
		if a.Attr.Type == unix.RTA_DST {
			addr, _ = netip.AddrFromSlice(a.Value)
		}
	}
	to = netip.PrefixFrom(addr, bits)
	return to, protocol, to.IsValid()
}
