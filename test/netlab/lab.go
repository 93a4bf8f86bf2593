package netlab

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
)

// The following addresses are the same in every lab. The gateway is the next hop of the node's default route. The node
// has the router addresses on all of its veth links.
var (
	NodeAddr4    = netip.MustParseAddr("192.0.2.10")
	NodeAddr6    = netip.MustParseAddr("2001:db8:2::10")
	GatewayAddr4 = netip.MustParseAddr("192.0.2.1")
	GatewayAddr6 = netip.MustParseAddr("2001:db8:2::1")
	RouterAddr4  = netip.MustParseAddr("169.254.1.1")
	RouterAddr6  = netip.MustParseAddr("fe80::1")
)

// Options configures a Lab.
type Options struct {
	// InPlace makes this process's network namespace the node's namespace, for code that cannot stay on one thread. The
	// process must run under Isolate. Only one lab with InPlace can exist at a time.
	InPlace bool
}

// Lab is a network of hosts. The lab removes its hosts at the end of the test.
type Lab struct {
	Node, Gateway *Host

	t      testing.TB
	prefix string

	mu       sync.Mutex
	hosts    []*Host
	lastPort atomic.Uint32
}

// New creates a lab with a node and a gateway, and removes namespaces and control groups of labs whose processes have
// exited. New fails the test if it cannot create the lab, for example without root privileges.
func New(t testing.TB, opts Options) *Lab {
	t.Helper()
	removeStaleNamespaces(t)
	l := &Lab{t: t, prefix: fmt.Sprintf("%s%d-%08x-", namePrefix, os.Getpid(), rand.Uint32())}
	t.Cleanup(l.close)
	if err := l.makeNode(opts.InPlace); err != nil {
		t.Fatalf("lab: node: %v", err)
	}
	removeStaleGroups(t, l.Node.Cgroup())
	if err := l.makeGateway(); err != nil {
		t.Fatalf("lab: gateway: %v", err)
	}
	return l
}

// Host adds a host and connects it to the node. The host's name is also the name of the node's interface, so the name
// can have at most 15 bytes. All of the host's traffic passes through the node.
func (l *Lab) Host(name string, addrs ...netip.Addr) *Host {
	l.t.Helper()
	h, err := l.newHost(name)
	if err == nil {
		err = l.attach(h, addrs)
	}
	if err != nil {
		l.t.Fatalf("lab: host %s: %v", name, err)
	}
	return h
}

// AddNodeAddr adds an address to the node, on "eth0" or on "lo".
func (l *Lab) AddNodeAddr(device string, addr netip.Addr) {
	l.t.Helper()
	if err := l.Node.addAddr(device, netip.PrefixFrom(addr, addr.BitLen()), false); err != nil {
		l.t.Fatalf("lab: cannot add the address %s to the node: %v", addr, err)
	}
	l.Node.Addrs = append(l.Node.Addrs, addr)
}

// RemoveNodeAddr removes an address that AddNodeAddr added.
func (l *Lab) RemoveNodeAddr(device string, addr netip.Addr) {
	l.t.Helper()
	if err := l.Node.removeAddr(device, netip.PrefixFrom(addr, addr.BitLen())); err != nil {
		l.t.Fatalf("lab: cannot remove the address %s from the node: %v", addr, err)
	}
	l.Node.Addrs = slices.DeleteFunc(l.Node.Addrs, func(a netip.Addr) bool { return a == addr })
}

func (l *Lab) makeNode(inPlace bool) error {
	if !inPlace {
		h, err := l.newHost("node")
		if err != nil {
			return err
		}
		l.Node = h
		return h.forward()
	}
	if os.Getenv(isolatedVariable) == "" {
		return errors.New("Options.InPlace requires a process that Isolate started")
	}
	h, err := ownHost("node", l)
	if err != nil {
		return err
	}
	l.Node = h
	l.hosts = append(l.hosts, h)
	return errors.Join(h.makeGroup(), h.enterGroup(), h.setUp(), h.forward())
}

func (l *Lab) makeGateway() error {
	gw, err := l.newHost("gateway")
	if err != nil {
		return err
	}
	l.Gateway = gw
	if err := l.pair("eth0", gw); err != nil {
		return err
	}
	for _, a := range []struct {
		h    *Host
		addr netip.Prefix
	}{
		{l.Node, netip.PrefixFrom(NodeAddr4, 24)},
		{l.Node, netip.PrefixFrom(NodeAddr6, 64)},
		{gw, netip.PrefixFrom(GatewayAddr4, 24)},
		{gw, netip.PrefixFrom(GatewayAddr6, 64)},
	} {
		if err := a.h.addAddr("eth0", a.addr, false); err != nil {
			return err
		}
		a.h.Addrs = append(a.h.Addrs, a.addr.Addr())
	}
	for _, family := range [][2]netip.Addr{{NodeAddr4, GatewayAddr4}, {NodeAddr6, GatewayAddr6}} {
		node, gateway := family[0], family[1]
		if err := errors.Join(
			gw.neighbour("eth0", node, macOf(gw, nodeSide)), l.Node.neighbour("eth0", gateway, macOf(gw, hostSide)),
			l.Node.defaultRoute(gateway), gw.defaultRoute(node),
		); err != nil {
			return err
		}
	}
	return gw.rejectForwarding("eth0")
}

func (l *Lab) attach(h *Host, addrs []netip.Addr) error {
	if err := l.pair(h.Name, h); err != nil {
		return err
	}
	h.Addrs = addrs
	for _, router := range []netip.Addr{RouterAddr4, RouterAddr6} {
		if err := errors.Join(
			l.Node.addAddr(h.Name, netip.PrefixFrom(router, router.BitLen()), true),
			h.linkRoute("eth0", router), h.neighbour("eth0", router, macOf(h, nodeSide)),
		); err != nil {
			return err
		}
	}
	for _, a := range addrs {
		if err := errors.Join(
			h.addAddr("eth0", netip.PrefixFrom(a, a.BitLen()), false),
			l.Node.linkRoute(h.Name, a), l.Node.neighbour(h.Name, a, macOf(h, hostSide)),
		); err != nil {
			return err
		}
	}
	return errors.Join(h.defaultRoute(RouterAddr4), h.defaultRoute(RouterAddr6))
}

func (l *Lab) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := len(l.hosts) - 1; i >= 0; i-- {
		if err := l.hosts[i].close(); err != nil {
			l.t.Errorf("lab: cannot remove %s: %v", l.hosts[i].Name, err)
		}
	}
}

// port returns the next source port. Servers and NodePorts use lower ports. The lab reuses a port only after 30,000
// connections, because connection tracking could otherwise mistake a new flow for an old one.
func (l *Lab) port() uint16 { return uint16(33000 + l.lastPort.Add(1)%30000) }
