package rtnl

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// Family returns AF_INET for IPv4 and AF_INET6 for IPv6.
func Family(f plan.Family) int {
	if f == plan.IPv6 {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

// maxAttempts is the maximum number of attempts in a call to Retry. Without this limit, Retry might never return,
// because the listed objects may keep changing.
const maxAttempts = 5

// Retry calls list, and calls it again if the listed objects changed while the kernel was sending them. If the objects
// changed during each of maxAttempts calls, Retry returns the last result and netlink.ErrDumpInterrupted.
func Retry[T any](list func() (T, error)) (found T, err error) {
	for range maxAttempts {
		if found, err = list(); !errors.Is(err, netlink.ErrDumpInterrupted) {
			break
		}
	}
	return found, err
}

// Prefix returns the destination prefix of a route. For a default route, netlink v1.3.1 returns 0.0.0.0/0 or ::/0.
// Prefix also treats a route without a destination as a default route.
func Prefix(dst *net.IPNet) netip.Prefix {
	if dst == nil {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	a, _ := netip.AddrFromSlice(dst.IP)
	bits, size := dst.Mask.Size()
	if size == net.IPv4len*8 {
		a = a.Unmap()
	}
	return netip.PrefixFrom(a, bits)
}

// ParseRoute parses a route notification (a struct rtmsg followed by attributes) and returns the route's destination
// and routing protocol. ok is false for a routing cache entry.
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
