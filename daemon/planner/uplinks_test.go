package planner

import (
	"slices"
	"testing"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// An uplink determines the source address and the interface of Edgeway's own routes.
func TestUplinks(t *testing.T) {
	lo := nodeinfo.Addr{Addr: ip("127.0.0.1"), Interface: "lo"}
	eth0 := nodeinfo.Addr{Addr: ip("192.0.2.1"), Interface: "eth0"}
	eth1 := nodeinfo.Addr{Addr: ip("198.51.100.1"), Interface: "eth1"}
	primary := nodeinfo.Addr{Addr: ip("198.51.100.1"), Interface: "eth1", Primary: true}
	dummy := nodeinfo.Addr{Addr: ip("10.0.0.1"), Interface: "dummy0", Dummy: true}
	onLo := nodeinfo.Addr{Addr: ip("10.0.0.2"), Interface: "lo"}
	linkLocal := nodeinfo.Addr{Addr: ip("169.254.1.1"), Interface: "eth2"}
	eth06 := nodeinfo.Addr{Addr: ip("fd00::1"), Interface: "eth0"}
	for name, c := range map[string]struct {
		host    []nodeinfo.Addr
		options []string // addresses in the options
		node    []string // addresses of the Node object
		want    []plan.Uplink
		guessed []plan.Family
	}{
		"the only address":             {[]nodeinfo.Addr{lo, eth0}, nil, nil, []plan.Uplink{{Addr: eth0.Addr, Interface: "eth0"}}, []plan.Family{plan.IPv4}},
		"of two the first":             {[]nodeinfo.Addr{eth0, eth1}, nil, nil, []plan.Uplink{{Addr: eth0.Addr, Interface: "eth0"}}, []plan.Family{plan.IPv4}},
		"that of the default route":    {[]nodeinfo.Addr{eth0, primary}, nil, nil, []plan.Uplink{{Addr: eth1.Addr, Interface: "eth1"}}, nil},
		"that of the options":          {[]nodeinfo.Addr{eth0, eth1}, []string{"198.51.100.1"}, []string{"192.0.2.1"}, []plan.Uplink{{Addr: eth1.Addr, Interface: "eth1"}}, []plan.Family{plan.IPv4}},
		"that of the Node":             {[]nodeinfo.Addr{eth0, eth1}, nil, []string{"203.0.113.1", "198.51.100.1"}, []plan.Uplink{{Addr: eth1.Addr, Interface: "eth1"}}, []plan.Family{plan.IPv4}},
		"one that is not on the host":  {[]nodeinfo.Addr{eth0}, []string{"203.0.113.1"}, nil, []plan.Uplink{{Addr: eth0.Addr, Interface: "eth0"}}, []plan.Family{plan.IPv4}},
		"no dummy if there is another": {[]nodeinfo.Addr{dummy, eth0}, nil, nil, []plan.Uplink{{Addr: eth0.Addr, Interface: "eth0"}}, []plan.Family{plan.IPv4}},
		"a dummy has the address":      {[]nodeinfo.Addr{dummy, eth0}, []string{"10.0.0.1"}, nil, []plan.Uplink{{Addr: dummy.Addr, Interface: "eth0"}}, []plan.Family{plan.IPv4}},
		"a dummy alone":                {[]nodeinfo.Addr{dummy}, nil, nil, []plan.Uplink{{Addr: dummy.Addr, Interface: "dummy0"}}, []plan.Family{plan.IPv4}},
		"the address is on lo":         {[]nodeinfo.Addr{onLo, eth0}, []string{"10.0.0.2"}, nil, []plan.Uplink{{Addr: onLo.Addr, Interface: "eth0"}}, []plan.Family{plan.IPv4}},
		"nothing but lo":               {[]nodeinfo.Addr{onLo, lo}, nil, nil, nil, nil},
		"nothing but link-local":       {[]nodeinfo.Addr{lo, linkLocal}, nil, nil, nil, nil},
		"both families": {
			[]nodeinfo.Addr{eth0, eth06},
			nil, nil,
			[]plan.Uplink{{Addr: eth0.Addr, Interface: "eth0"}, {Addr: eth06.Addr, Interface: "eth0"}},
			[]plan.Family{plan.IPv4, plan.IPv6},
		},
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions()
			opts.OwnRoutes, opts.Node.Addresses = true, ips(c.options...)
			w := newWorld(t, opts)
			w.host = &nodeinfo.Host{Addrs: c.host}
			w.put(&source.Node{Name: hostName, Addresses: ips(c.node...)})
			if got := w.plan.Node.Uplinks; !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
			if got := w.env.guessedFamilies; !slices.Equal(got, c.guessed) {
				t.Errorf("guessed in %v, want %v", got, c.guessed)
			}
			w.Planner = New(testOptions())
			if w.replan(); w.plan.Node.Uplinks != nil {
				t.Errorf("without own routes there are %v", w.plan.Node.Uplinks)
			}
		})
	}
}

func withoutDefaultRoute() *nodeinfo.Host {
	h := testHost()
	for i := range h.Addrs {
		h.Addrs[i].Primary = false
	}
	return h
}

// If Edgeway's own routes determine the source address of the host's connections before the proxy chooses the endpoint,
// the proxy replaces the source address with an address on the link to the endpoint. When the host has a default route
// again, the proxy keeps the source address.
func TestGuessedSourceIsRewritten(t *testing.T) {
	opts := testOptions()
	opts.OwnRoutes, opts.Proxy.LocalDetection = true, config.DetectNone
	w := newWorld(t, opts, testService("svc", everywhere), testSlice("svc", ep(epThere)))
	check := func(when, host, outside string) {
		t.Helper()
		if got := outcome(w.plan.Decide(packetTo("host", "ClusterIP"))); got != host {
			t.Errorf("%s: from the host %s, want %s", when, got, host)
		}
		if got := outcome(w.plan.Decide(packetTo("outside", "ClusterIP"))); got != outside {
			t.Errorf("%s: from outside %s, want %s", when, got, outside)
		}
	}
	check("with a default route", "there", "there")
	w.host = withoutDefaultRoute()
	w.replan()
	check("without", "there+", "there")
	w.host = testHost()
	w.replan()
	check("with one again", "there", "there")
	opts.OwnRoutes = false
	w.Planner, w.host = New(opts), withoutDefaultRoute()
	w.replan()
	check("without own routes", "there", "there")
}

// If the host's primary address is unknown and a Service has a NodePort, the planner reports a problem and suggests a
// fix.
func TestNodePortsWithoutPrimaryAddress(t *testing.T) {
	opts := testOptions()
	w := newWorld(t, opts, testService("svc"))
	w.host = withoutDefaultRoute()
	w.replan()
	w.wantProblems()
	w.put(testService("svc", everywhere))
	const says = `proxy.nodeport_addresses: no address of this host accepts NodePorts over IPv4, because "primary" selects no address: `
	const todo = `; set node.addresses to the address that clients use, or set proxy.nodeport_addresses to ranges or "all"`
	const proposed = `; fix: node.addresses = ["192.0.2.1", "2001:db8::1"]`
	w.wantProblems(says + "this host has no IPv4 default route, and node.addresses lists no IPv4 address" + todo +
		proposed)
	w.put(testService("other", everywhere)) // the problems of Services still come last
	if last := w.problems[len(w.problems)-1]; len(w.problems) < 2 || last.Object.Kind != "Service" {
		t.Errorf("problems: %q", w.problems)
	}
	w.remove(testService("other"))

	opts.Node.Addresses = ips("203.0.113.5")
	w.Planner = New(opts)
	w.replan()
	w.wantProblems(says + "node.addresses lists 203.0.113.5, which is not an address of this host" + todo + proposed)
	for name, change := range map[string]func(*Options, *nodeinfo.Host){
		"node.addresses":      func(o *Options, _ *nodeinfo.Host) { o.Node.Addresses = ips(hostIP) },
		"a default route":     func(_ *Options, h *nodeinfo.Host) { h.Addrs[1].Primary = true },
		"a range":             func(o *Options, _ *nodeinfo.Host) { o.Proxy.NodePortAddresses.Prefixes = cidrs("192.0.2.0/24") },
		"not wanted":          func(o *Options, _ *nodeinfo.Host) { o.Proxy.NodePortAddresses = config.NodePortAddresses{} },
		"no address of IPv4":  func(_ *Options, h *nodeinfo.Host) { h.Addrs = slices.Delete(h.Addrs, 1, 2) },
		"no address anywhere": func(_ *Options, h *nodeinfo.Host) { h.Addrs = nil },
	} {
		opts := testOptions()
		w.host = withoutDefaultRoute()
		change(&opts, w.host)
		w.Planner = New(opts)
		w.replan()
		if len(w.problems) > 0 {
			t.Errorf("%s: %q", name, w.problems)
		}
	}
}

// The pod bridge has the numerically lowest address, but clients do not use that address.
func TestProposedAddresses(t *testing.T) {
	at := func(a, device string) nodeinfo.Addr { return nodeinfo.Addr{Addr: ip(a), Interface: device} }
	bridge := at("10.42.0.1", "cni0")
	bridge.Bridge = true
	for name, c := range map[string]struct {
		held []nodeinfo.Addr
		want string
	}{
		"beside a bridge":     {[]nodeinfo.Addr{bridge, at("192.0.2.1", "eth0")}, `"192.0.2.1"]  # or 10.42.0.1`},
		"a bridge alone":      {[]nodeinfo.Addr{bridge}, `"10.42.0.1"]`},
		"beside a pod's":      {[]nodeinfo.Addr{at("10.1.0.1", "gw"), at("192.0.2.1", "eth0")}, `"192.0.2.1"]  # or 10.1.0.1`},
		"a bridge and a pods": {[]nodeinfo.Addr{at("10.1.0.1", "gw"), bridge}, `"10.42.0.1"]  # or 10.1.0.1`},
	} {
		if got := proposeAddresses(c.held, cidrs(podCIDR)); got != "node.addresses = ["+c.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
