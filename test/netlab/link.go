package netlab

import (
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// nodeSide and hostSide distinguish the hardware addresses of a veth pair's two ends.
const (
	nodeSide = 1
	hostSide = 2
)

// macOf returns the hardware address of one end of the link between the node and h. With fixed hardware addresses,
// neighbor entries can be static, so packets need not wait for ARP.
func macOf(h *Host, side byte) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0, side, 0, byte(h.index >> 8), byte(h.index)}
}

func (l *Lab) pair(device string, h *Host) error {
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: device, HardwareAddr: macOf(h, nodeSide)})
	veth.PeerName, veth.PeerHardwareAddr, veth.PeerNamespace = "eth0", macOf(h, hostSide), netlink.NsFd(h.ns)
	if err := l.Node.link.LinkAdd(veth); err != nil {
		return fmt.Errorf("veth pair: %w", err)
	}
	if err := l.Node.up(device); err != nil {
		return err
	}
	return h.up("eth0")
}

func (h *Host) up(device string) error {
	link, err := h.link.LinkByName(device)
	if err != nil {
		return fmt.Errorf("interface %s: %w", device, err)
	}
	return h.link.LinkSetUp(link)
}

// addAddr adds an address that is usable immediately. If hidden is true, the kernel never chooses the address as a
// source.
func (h *Host) addAddr(device string, p netip.Prefix, hidden bool) error {
	link, err := h.link.LinkByName(device)
	if err != nil {
		return fmt.Errorf("interface %s: %w", device, err)
	}
	addr := &netlink.Addr{IPNet: ipNet(p), Flags: unix.IFA_F_NODAD}
	if hidden {
		addr.Scope = unix.RT_SCOPE_LINK
	}
	if err := h.link.AddrAdd(link, addr); err != nil {
		return fmt.Errorf("address %s on %s: %w", p, device, err)
	}
	return h.awaitLocalRoute(p.Addr())
}

// awaitLocalRoute waits until the kernel has added the local route for a new address, because Linux 6.18 adds the IPv6
// route asynchronously. Other hosts cannot reach an address on lo without its local route.
func (h *Host) awaitLocalRoute(addr netip.Addr) error {
	for range 10_000 {
		routes, err := h.link.RouteGet(addr.AsSlice())
		if err == nil && len(routes) > 0 && routes[0].Type == unix.RTN_LOCAL {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return fmt.Errorf("the kernel has not added a local route for the address %s", addr)
}

func (h *Host) removeAddr(device string, p netip.Prefix) error {
	link, err := h.link.LinkByName(device)
	if err != nil {
		return fmt.Errorf("interface %s: %w", device, err)
	}
	return h.link.AddrDel(link, &netlink.Addr{IPNet: ipNet(p)})
}

func (h *Host) linkRoute(device string, addr netip.Addr) error {
	return h.route(device, &netlink.Route{Dst: ipNet(netip.PrefixFrom(addr, addr.BitLen())), Scope: unix.RT_SCOPE_LINK})
}

func (h *Host) defaultRoute(via netip.Addr) error {
	family := unix.AF_INET
	if via.Is6() {
		family = unix.AF_INET6
	}
	return h.route("eth0", &netlink.Route{Dst: ipNet(everywhere(family)), Gw: via.AsSlice()})
}

func (h *Host) route(device string, r *netlink.Route) error {
	link, err := h.link.LinkByName(device)
	if err != nil {
		return fmt.Errorf("interface %s: %w", device, err)
	}
	r.LinkIndex = link.Attrs().Index
	if err := h.link.RouteReplace(r); err != nil {
		return fmt.Errorf("route %s dev %s: %w", r.Dst, device, err)
	}
	return nil
}

// rejectForwarding configures the host to send an ICMP "unreachable" message when a packet for another host arrives on
// device.
func (h *Host) rejectForwarding(device string) error {
	const table = 100
	for _, family := range []int{unix.AF_INET, unix.AF_INET6} {
		rule := netlink.NewRule()
		rule.Family, rule.IifName, rule.Table = family, device, table
		if err := h.link.RuleAdd(rule); err != nil {
			return fmt.Errorf("rule for %s: %w", device, err)
		}
		if err := h.link.RouteAdd(&netlink.Route{
			Family: family, Table: table, Type: unix.RTN_UNREACHABLE,
			Dst: ipNet(everywhere(family)),
		}); err != nil {
			return fmt.Errorf("unreachable route: %w", err)
		}
	}
	return h.forward()
}

func everywhere(family int) netip.Prefix {
	if family == unix.AF_INET {
		return netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return netip.PrefixFrom(netip.IPv6Unspecified(), 0)
}

func (h *Host) neighbour(device string, addr netip.Addr, mac net.HardwareAddr) error {
	link, err := h.link.LinkByName(device)
	if err != nil {
		return fmt.Errorf("interface %s: %w", device, err)
	}
	err = h.link.NeighSet(&netlink.Neigh{
		LinkIndex: link.Attrs().Index, State: unix.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac,
	})
	if err != nil {
		return fmt.Errorf("neighbour %s on %s: %w", addr, device, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}
