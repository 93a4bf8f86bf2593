package conformance

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// Every endpoint listens on two ports: endpointPort, which is the default, and otherEndpointPort.
const (
	endpointPort      = 8080
	otherEndpointPort = 9090
)

// extraAddrs is the number of additional addresses that client-a and pod-c each have. For session affinity, each
// address counts as a separate client.
const extraAddrs = 16

const hostName = "host"

var (
	protocols = []plan.Protocol{plan.TCP, plan.UDP, plan.SCTP}
	families  = []plan.Family{plan.IPv4, plan.IPv6}

	defaultServiceCIDRs = []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16"), netip.MustParsePrefix("fd00:96::/112")}
	podRanges           = []netip.Prefix{
		netip.MustParsePrefix("10.244.1.0/24"),
		netip.MustParsePrefix("fd00:10:244:1::/64"),
	}
)

// hostRanges maps the first part of a name, such as "pod", to an IPv4 and an IPv6 address range of the lab.
var hostRanges = map[string][2]string{
	"pod":      {"10.244.1.", "fd00:10:244:1::"},
	"far":      {"10.244.2.", "fd00:10:244:2::"},
	"client":   {"203.0.113.", "2001:db8:113::"},
	"cluster":  {"10.96.0.", "fd00:96::"},
	"external": {"198.51.100.", "2001:db8:51::"},
	"lb":       {"198.51.101.", "2001:db8:52::"},
	"node":     {"192.0.2.", "2001:db8:2::"},
}

// suiteLab is the suite's lab, with the hosts and endpoints that scenarios name.
type suiteLab struct {
	*netlab.Lab
	hosts     map[string]*netlab.Host
	endpoints map[string]map[plan.Family]netip.AddrPort
	// listeners maps the address of each server that the host itself runs to a function that stops the server.
	listeners map[listener]func() error
}

type listener struct {
	at       netip.AddrPort
	protocol plan.Protocol
}

// selfName is the name that the host's own servers send. The host's own servers listen at destinations that no Service
// may intercept.
const selfName = "host itself"

func newWorld(t *testing.T) *suiteLab {
	w := &suiteLab{
		Lab:       netlab.New(t, netlab.Options{InPlace: true}),
		endpoints: endpointAddrs(),
		listeners: map[listener]func() error{},
	}
	t.Cleanup(func() {
		for _, stop := range w.listeners {
			_ = stop() // the lab is removed after the test anyway
		}
	})
	w.hosts = map[string]*netlab.Host{hostName: w.Node}
	for _, name := range []string{"node-2", "node-3"} {
		for _, f := range families {
			a := mustAddress(name, f)
			w.AddNodeAddr("eth0", a)
			t.Cleanup(func() { w.RemoveNodeAddr("eth0", a) })
		}
	}
	for _, name := range []string{"pod-a", "pod-b", "pod-c", "far-a", "far-b", "client-a", "client-b"} {
		var addrs []netip.Addr
		for _, f := range families {
			addrs = append(addrs, mustAddress(name, f))
			if name == "client-a" || name == "pod-c" {
				addrs = append(addrs, crowd(name, f)...)
			}
		}
		w.hosts[name] = w.Host(name, addrs...)
	}
	for name, addrs := range w.endpoints {
		host, _, _ := strings.Cut(name, ":")
		for _, at := range addrs {
			if err := w.hosts[host].Serve(name, at, protocols...); err != nil {
				t.Fatal(err)
			}
		}
	}
	return w
}

func (w *suiteLab) lab() *labAddrs { return &labAddrs{hostAddrs: w.Node.Addrs, endpoints: w.endpoints} }

func endpointAddrs() map[string]map[plan.Family]netip.AddrPort {
	all := map[string]map[plan.Family]netip.AddrPort{}
	for _, host := range []string{"pod-a", "pod-b", "far-a", "far-b", hostName} {
		for name, port := range map[string]uint16{
			host: endpointPort,
			fmt.Sprintf("%s:%d", host, otherEndpointPort): otherEndpointPort,
		} {
			all[name] = map[plan.Family]netip.AddrPort{}
			for _, f := range families {
				all[name][f] = netip.AddrPortFrom(mustAddress(host, f), port)
			}
		}
	}
	return all
}

func (w *suiteLab) listen(at netip.AddrPort, protocol plan.Protocol) (err error) {
	l := listener{at, protocol}
	if w.listeners[l] == nil {
		w.listeners[l], err = w.Node.Start(selfName, at, protocol)
	}
	return err
}

// stopLoopbackServers stops the host's TCP servers on loopback, because the backend may need the same addresses for the
// next plan.
func (w *suiteLab) stopLoopbackServers() {
	for l, stop := range w.listeners {
		if l.protocol == plan.TCP && l.at.Addr().IsLoopback() {
			_ = stop() // if stop fails, listening for the next plan also fails
			delete(w.listeners, l)
		}
	}
}

func crowd(host string, f plan.Family) []netip.Addr {
	addrs := make([]netip.Addr, extraAddrs)
	first := mustAddress(host, f)
	for i := range addrs {
		raw := first.AsSlice()
		raw[len(raw)-1] = byte(64 + i)
		addrs[i], _ = netip.AddrFromSlice(raw)
	}
	return addrs
}

// address resolves a name in a scenario, such as "pod-a", "node-2", "cluster-7" or "loopback".
func address(name string, f plan.Family) (netip.Addr, error) {
	switch name {
	case hostName:
		name = "node-1"
	case "loopback":
		if f == plan.IPv6 {
			return netip.IPv6Loopback(), nil
		}
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	kind, which, _ := strings.Cut(name, "-")
	ranges, known := hostRanges[kind]
	if !known || which == "" {
		return netip.Addr{}, fmt.Errorf("no address is named %q; the first part of a name must be one of %v", name,
			slices.Sorted(maps.Keys(hostRanges)))
	}
	n, err := strconv.ParseUint(which, 10, 8)
	switch {
	case len(which) == 1 && which[0] >= 'a' && which[0] <= 'z':
		n = uint64(which[0]-'a') + 2 // the gateway has .1
		if which == "b" && kind == "client" {
			n = 130 // client-b is in the other half of the range
		}
	case err != nil:
		return netip.Addr{}, fmt.Errorf("address %q: the part after the dash is neither a letter nor a number below 256", name)
	case kind == "node":
		n += 9 // node-1 is the node's address in every netlab
	}
	text := fmt.Sprintf("%s%d", ranges[0], n)
	if f == plan.IPv6 {
		text = fmt.Sprintf("%s%d", ranges[1], n)
	}
	return netip.ParseAddr(text)
}

// mustAddress is like address, but panics if name is invalid, because an invalid name is a mistake in the suite.
func mustAddress(name string, f plan.Family) netip.Addr {
	a, err := address(name, f)
	if err != nil {
		panic(err)
	}
	return a
}

// isLocal reports whether the endpoints of the named host run on the node.
func isLocal(host string) bool { return host == hostName || strings.HasPrefix(host, "pod-") }
