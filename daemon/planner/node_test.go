package planner

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

func TestNodePortAddrs(t *testing.T) {
	primary := config.NodePortAddresses{Primary: true}
	noRoute := func(h *nodeinfo.Host) {
		for i := range h.Addrs {
			h.Addrs[i].Primary = false
		}
	}
	second := func(h *nodeinfo.Host) { h.Addrs = append(h.Addrs, nodeinfo.Addr{Addr: ip("192.0.2.50")}) }
	for name, c := range map[string]struct {
		entries config.NodePortAddresses
		host    func(*nodeinfo.Host)
		node    []string // addresses of the Node object
		options []string // addresses in the options
		want    []string // including loopback addresses
	}{
		"primary":                             {primary, nil, nil, nil, []string{hostIP, hostIP6}},
		"primary, no default route":           {primary, noRoute, nil, nil, nil},
		"primary by the Node":                 {primary, second, []string{"192.0.2.50"}, nil, []string{"192.0.2.50", hostIP6}},
		"primary by the Node, on the host":    {primary, second, []string{"198.51.100.9", "192.0.2.50"}, nil, []string{"192.0.2.50", hostIP6}},
		"primary, the Node is behind":         {primary, nil, []string{"198.51.100.9"}, nil, []string{hostIP, hostIP6}},
		"primary by the options":              {primary, second, []string{hostIP}, []string{"192.0.2.50"}, []string{"192.0.2.50", hostIP6}},
		"primary by the options, not on host": {primary, nil, nil, []string{"198.51.100.9"}, []string{hostIP6}},
		"ranges": {
			config.NodePortAddresses{Prefixes: cidrs("192.0.2.0/24", "127.0.0.0/8")},
			second, nil, nil,
			[]string{hostIP, "192.0.2.50", "127.0.0.1"},
		},
		"localhost":                           {config.NodePortAddresses{Localhost: true}, nil, nil, nil, []string{"127.0.0.1", "::1"}},
		"localhost, IPv6 alone on loopback":   {config.NodePortAddresses{Localhost: true}, func(h *nodeinfo.Host) { h.Addrs = h.Addrs[1:] }, nil, nil, []string{"::1"}},
		"primary and localhost":               {config.NodePortAddresses{Primary: true, Localhost: true}, nil, nil, nil, []string{hostIP, hostIP6, "127.0.0.1", "::1"}},
		"another loopback address":            {config.NodePortAddresses{Prefixes: cidrs("127.0.0.53/32")}, nil, nil, nil, []string{"127.0.0.1"}},
		"all of IPv6 and its loopback":        {config.NodePortAddresses{Prefixes: cidrs("::/0", "::1/128")}, nil, nil, nil, []string{hostIP6, "fe80::1", "::1"}},
		"a range that is wider than loopback": {config.NodePortAddresses{Prefixes: cidrs("126.0.0.0/7", "::/127")}, nil, nil, nil, nil},
		"all of IPv4 is no IPv6":              {config.NodePortAddresses{Prefixes: cidrs("0.0.0.0/0")}, nil, nil, nil, []string{hostIP}},
		"all": {
			config.NodePortAddresses{Prefixes: cidrs("0.0.0.0/0", "::/0")},
			nil, nil, nil,
			[]string{hostIP, hostIP6, "fe80::1"},
		},
		"the keyword all": {config.NodePortAddresses{All: true}, nil, nil, nil, []string{hostIP, hostIP6, "fe80::1"}},
		"mixed":           {config.NodePortAddresses{Primary: true, Prefixes: cidrs("192.0.2.50/32")}, second, nil, nil, []string{hostIP, "192.0.2.50", hostIP6}},
		"none":            {config.NodePortAddresses{}, second, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions()
			opts.Proxy.NodePortAddresses, opts.Node.Addresses = c.entries, ips(c.options...)
			w := newWorld(t, opts)
			if c.host != nil {
				c.host(w.host)
			}
			w.Planner = New(opts)
			w.put(&source.Node{Name: hostName, Addresses: ips(c.node...)})
			if got := slices.Concat(w.plan.Node.NodePortAddrs, w.plan.Node.LoopbackAddrs); !slices.Equal(got,
				ips(c.want...)) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestPlanNode(t *testing.T) {
	opts := testOptions()
	opts.Proxy.ClusterCIDRs = cidrs("10.9.0.0/24", "10.1.0.0/16", "10.1.5.0/24")
	opts.Proxy.ServiceCIDRs = cidrs("10.96.0.1/16", "fd00:96::/112")
	w := newWorld(t, opts,
		&source.Node{Name: hostName, PodCIDRs: cidrs("10.8.0.0/24")},
		&source.ServiceCIDR{Name: "kubernetes", CIDRs: cidrs("10.96.3.0/24", "10.112.0.0/16")})
	w.host.Addrs = append(w.host.Addrs, w.host.Addrs[4]) // fe80::1 again, on another interface
	w.host = &nodeinfo.Host{Addrs: w.host.Addrs}
	w.replan()
	want := &plan.Node{
		Name:          hostName,
		HostAddrs:     ips("127.0.0.1", hostIP, "::1", hostIP6, "fe80::1"),
		NodePortAddrs: ips(hostIP, hostIP6),
		PodSources:    cidrs("10.1.0.0/16", "10.9.0.0/24"),
		ServiceCIDRs:  cidrs("10.96.0.0/16", "10.112.0.0/16", "fd00:96::/112"),
	}
	if !reflect.DeepEqual(w.plan.Node, want) {
		t.Errorf("got %+v\nwant %+v", w.plan.Node, want)
	}
}

// The planner uses only the setting for the configured pod detection mode.
func TestPodDetectionModes(t *testing.T) {
	proxy := config.Proxy{ClusterCIDRs: cidrs(podCIDR), BridgeInterface: "cni0", InterfaceNamePrefix: "veth"}
	for mode, want := range map[config.LocalDetection]struct {
		ranges     []netip.Prefix
		interfaces []string
	}{
		config.DetectNone:        {},
		config.DetectClusterCIDR: {cidrs(podCIDR), nil},
		config.DetectNodeCIDR:    {cidrs("10.9.0.0/24"), nil},
		config.DetectBridge:      {nil, []string{"cni0"}},
		config.DetectPrefix:      {nil, []string{"veth*"}},
	} {
		proxy.LocalDetection = mode
		ranges, interfaces := (&Options{Proxy: proxy}).pods(&source.Node{PodCIDRs: cidrs("10.9.0.0/24")})
		if !slices.Equal(ranges, want.ranges) || !slices.Equal(interfaces, want.interfaces) {
			t.Errorf("%s: %v and %q, want %+v", mode, ranges, interfaces, want)
		}
	}
}

// The planner recognizes pods in each detection mode, separately for each family.
func TestPodDetection(t *testing.T) {
	none, nodeCIDR := config.Proxy{}, config.Proxy{LocalDetection: config.DetectNodeCIDR}
	inRange := func(cidr string) config.Proxy {
		return config.Proxy{LocalDetection: config.DetectClusterCIDR, ClusterCIDRs: cidrs(cidr)}
	}
	bridge := config.Proxy{LocalDetection: config.DetectBridge, BridgeInterface: "veth1"}
	prefix := func(s string) config.Proxy {
		return config.Proxy{LocalDetection: config.DetectPrefix, InterfaceNamePrefix: s}
	}
	for name, c := range map[string]struct {
		proxy   config.Proxy
		origin  string
		want    string // the outcome at the IPv4 ClusterIP
		without string // the outcome without a Node object
	}{
		"none":                 {none, "outside", "there", "there"},
		"cluster CIDR":         {inRange(podCIDR), "outside", "there+", "there+"},
		"of a pod":             {inRange(podCIDR), "pod", "there", "there"},
		"the other family's":   {inRange("fd00:1::/64"), "outside", "there", "there"},
		"node CIDR":            {nodeCIDR, "outside", "there+", "there"},
		"node CIDR, of a pod":  {nodeCIDR, "pod", "there", "there"},
		"interface":            {bridge, "outside", "there+", "there+"},
		"interface, of a pod":  {bridge, "pod", "there", "there"},
		"prefix, of a pod":     {prefix("ve"), "pod", "there", "there"},
		"another prefix":       {prefix("tap"), "pod", "there+", "there+"},
		"the host is no pod":   {prefix("ve"), "host", "there+", "there+"},
		"the host, no pods":    {none, "host", "there", "there"},
		"pods without a range": {nodeCIDR, "host", "there+", "there"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions()
			opts.Proxy = c.proxy
			node := &source.Node{Name: hostName, PodCIDRs: cidrs(podCIDR)}
			w := newWorld(t, opts, node, testService("svc"), testSlice("svc", ep(epThere)))
			if got := outcome(w.plan.Decide(packetTo(c.origin, "ClusterIP"))); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
			w.remove(node)
			if got := outcome(w.plan.Decide(packetTo(c.origin, "ClusterIP"))); got != c.without {
				t.Errorf("without a Node object: got %s, want %s", got, c.without)
			}
		})
	}
}

// An endpoint is local if its node name is this host's node name. The node name in the options takes precedence over
// the name of the Node object.
func TestLocalByNodeName(t *testing.T) {
	local := func(s *source.Service) { s.InternalLocal = true }
	named := ep("10.1.0.1")
	named.NodeName = "by-node"
	opts := testOptions()
	opts.Node.Name = ""
	w := newWorld(t, opts, testService("svc", local),
		testSlice("svc", ep("10.1.0.2", "here"), named, ep("10.1.0.3", "nowhere")))
	wantAddrs(t, "no name", w.find("svc", plan.IPv4).Pools[plan.LocalPool])
	w.put(&source.Node{Name: "by-node"})
	wantAddrs(t, "the Node's name", w.find("svc", plan.IPv4).Pools[plan.LocalPool], "10.1.0.1")
	w.Planner = New(testOptions())
	w.replan()
	wantAddrs(t, "the options' name", w.find("svc", plan.IPv4).Pools[plan.LocalPool], "10.1.0.2")
}

// A new host address changes the plan's Node, but none of its Services.
func TestHostAddressChange(t *testing.T) {
	w := newWorld(t, testOptions(), testService("svc", everywhere), testSlice("svc", ep(epThere)))
	before, node := w.find("svc", plan.IPv4), w.plan.Node
	w.host = testHost()
	w.host.Addrs[1].Addr = ip("192.0.2.2")
	w.replan()
	if w.find("svc", plan.IPv4) != before {
		t.Error("the Service changed")
	}
	if want := ips("192.0.2.2", hostIP6); w.plan.Node == node || !slices.Equal(w.plan.Node.NodePortAddrs, want) {
		t.Errorf("NodePort addresses: %v", w.plan.Node.NodePortAddrs)
	}
	node = w.plan.Node
	w.host = &nodeinfo.Host{Addrs: slices.Clone(w.host.Addrs)}
	w.replan()
	if w.plan.Node != node {
		t.Error("an equal Node is not shared")
	}
	w.host = nil
	w.replan()
	if len(w.plan.Node.HostAddrs) != 0 || len(w.plan.Services) != 0 {
		t.Error("a host that nothing is known of has addresses or families")
	}
}
