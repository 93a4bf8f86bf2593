package planner

import (
	"reflect"
	"slices"
	"testing"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

func TestNodePortAddrs(t *testing.T) {
	primary := NodePortAddresses{Primary: true}
	noRoute := func(h *nodeinfo.Host) {
		for i := range h.Addrs {
			h.Addrs[i].Primary = false
		}
	}
	second := func(h *nodeinfo.Host) { h.Addrs = append(h.Addrs, nodeinfo.Addr{Addr: ip("192.0.2.50")}) }
	for name, c := range map[string]struct {
		entries NodePortAddresses
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
			NodePortAddresses{Prefixes: cidrs("192.0.2.0/24", "127.0.0.0/8")}, second, nil, nil, []string{hostIP, "192.0.2.50", "127.0.0.1"},
		},
		"localhost":                           {NodePortAddresses{Localhost: true}, nil, nil, nil, []string{"127.0.0.1", "::1"}},
		"localhost, IPv6 alone on loopback":   {NodePortAddresses{Localhost: true}, func(h *nodeinfo.Host) { h.Addrs = h.Addrs[1:] }, nil, nil, []string{"::1"}},
		"primary and localhost":               {NodePortAddresses{Primary: true, Localhost: true}, nil, nil, nil, []string{hostIP, hostIP6, "127.0.0.1", "::1"}},
		"another loopback address":            {NodePortAddresses{Prefixes: cidrs("127.0.0.53/32")}, nil, nil, nil, []string{"127.0.0.1"}},
		"all of IPv6 and its loopback":        {NodePortAddresses{Prefixes: cidrs("::/0", "::1/128")}, nil, nil, nil, []string{hostIP6, "fe80::1", "::1"}},
		"a range that is wider than loopback": {NodePortAddresses{Prefixes: cidrs("126.0.0.0/7", "::/127")}, nil, nil, nil, nil},
		"all of IPv4 is no IPv6":              {NodePortAddresses{Prefixes: cidrs("0.0.0.0/0")}, nil, nil, nil, []string{hostIP}},
		"all": {
			NodePortAddresses{Prefixes: cidrs("0.0.0.0/0", "::/0")}, nil, nil, nil, []string{hostIP, hostIP6, "fe80::1"},
		},
		"mixed": {NodePortAddresses{Primary: true, Prefixes: cidrs("192.0.2.50/32")}, second, nil, nil, []string{hostIP, "192.0.2.50", hostIP6}},
		"none":  {NodePortAddresses{}, second, nil, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions()
			opts.NodePorts, opts.NodeAddresses = c.entries, ips(c.options...)
			w := newWorld(t, opts)
			if c.host != nil {
				c.host(w.host)
			}
			w.Planner = New(opts)
			w.put(&source.Node{Name: hostName, Addresses: ips(c.node...)})
			if got := slices.Concat(w.plan.Node.NodePortAddrs, w.plan.Node.LoopbackAddrs); !slices.Equal(got, ips(c.want...)) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestPlanNode(t *testing.T) {
	opts := testOptions()
	opts.Pods = PodDetection{CIDRs: cidrs("10.1.0.0/16", "10.1.5.0/24"), NodeCIDRs: true, Interfaces: []string{"veth*", "cni0"}}
	opts.ServiceCIDRs = cidrs("10.96.0.1/16", "fd00:96::/112")
	w := newWorld(t, opts,
		&source.Node{Name: hostName, PodCIDRs: cidrs("10.9.0.0/24")},
		&source.ServiceCIDR{Name: "kubernetes", CIDRs: cidrs("10.96.3.0/24", "10.112.0.0/16")})
	w.host.Addrs = append(w.host.Addrs, w.host.Addrs[4]) // fe80::1 again, on another interface
	w.host = &nodeinfo.Host{Addrs: w.host.Addrs}
	w.replan()
	want := &plan.Node{
		Name:          hostName,
		HostAddrs:     ips("127.0.0.1", hostIP, "::1", hostIP6, "fe80::1"),
		NodePortAddrs: ips(hostIP, hostIP6),
		PodSources:    cidrs("10.1.0.0/16", "10.9.0.0/24"),
		PodInterfaces: []string{"cni0", "veth*"},
		ServiceCIDRs:  cidrs("10.96.0.0/16", "10.112.0.0/16", "fd00:96::/112"),
	}
	if !reflect.DeepEqual(w.plan.Node, want) {
		t.Errorf("got %+v\nwant %+v", w.plan.Node, want)
	}
}

// The planner detects pods by each configured method, separately for each family.
func TestPodDetection(t *testing.T) {
	for name, c := range map[string]struct {
		pods    PodDetection
		origin  string
		want    string // the outcome at the IPv4 ClusterIP
		without string // the outcome without a Node object
	}{
		"none":                 {PodDetection{}, "outside", "there", "there"},
		"cluster CIDR":         {PodDetection{CIDRs: cidrs(podCIDR)}, "outside", "there+", "there+"},
		"of a pod":             {PodDetection{CIDRs: cidrs(podCIDR)}, "pod", "there", "there"},
		"the other family's":   {PodDetection{CIDRs: cidrs("fd00:1::/64")}, "outside", "there", "there"},
		"node CIDR":            {PodDetection{NodeCIDRs: true}, "outside", "there+", "there"},
		"node CIDR, of a pod":  {PodDetection{NodeCIDRs: true}, "pod", "there", "there"},
		"interface":            {PodDetection{Interfaces: []string{"veth1"}}, "outside", "there+", "there+"},
		"interface, of a pod":  {PodDetection{Interfaces: []string{"veth1"}}, "pod", "there", "there"},
		"prefix, of a pod":     {PodDetection{Interfaces: []string{"ve*"}}, "pod", "there", "there"},
		"another prefix":       {PodDetection{Interfaces: []string{"tap*"}}, "pod", "there+", "there+"},
		"the host is no pod":   {PodDetection{Interfaces: []string{"ve*"}}, "host", "there+", "there+"},
		"the host, no pods":    {PodDetection{}, "host", "there", "there"},
		"pods without a range": {PodDetection{NodeCIDRs: true}, "host", "there+", "there"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions()
			opts.Pods = c.pods
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

// An endpoint is local if the endpoint's node name is that of this host. The node name in the options takes precedence
// over the name of the Node object.
func TestLocalByNodeName(t *testing.T) {
	local := func(s *source.Service) { s.InternalLocal = true }
	named := ep("10.1.0.1")
	named.NodeName = "by-node"
	opts := testOptions()
	opts.NodeName = ""
	w := newWorld(t, opts, testService("svc", local), testSlice("svc", ep("10.1.0.2", "here"), named, ep("10.1.0.3", "nowhere")))
	wantAddrs(t, "no name", w.find("svc", plan.IPv4).Pools[plan.LocalPool])
	w.put(&source.Node{Name: "by-node"})
	wantAddrs(t, "the Node's name", w.find("svc", plan.IPv4).Pools[plan.LocalPool], "10.1.0.1")
	w.Planner = New(testOptions())
	w.replan()
	wantAddrs(t, "the options' name", w.find("svc", plan.IPv4).Pools[plan.LocalPool], "10.1.0.2")
}

// A new host address changes the Node of the plan, but no Service.
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
