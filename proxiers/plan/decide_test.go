package plan

import (
	"net/netip"
	"strings"
	"testing"
)

func addr(s string) netip.Addr         { return netip.MustParseAddr(s) }
func addrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }
func prefixes(list ...string) (out []netip.Prefix) {
	for _, s := range list {
		out = append(out, netip.MustParsePrefix(s))
	}
	return out
}

// Each array holds the Routes of a frontend in the test plan, indexed by Origin.
var (
	forwardCluster = [numOrigins]Route{
		{Forward, ClusterPool, false},
		{Forward, ClusterPool, true},
		{Forward, LocalPool, false},
	}
	refuse = [numOrigins]Route{{Verdict: Reject}, {Verdict: Reject}, {Verdict: Reject}}
	mixed  = [numOrigins]Route{{Verdict: Forward}, {Verdict: Reject}, {Verdict: Drop}}
)

func testPlan() *Plan {
	name := func(n string, p Protocol) ServicePortName {
		return ServicePortName{Namespace: "ns", Name: n, Protocol: p}
	}
	web := &ServicePort{
		Name: name("web", TCP), Family: IPv4,
		Frontends: []Frontend{
			{Kind: ClusterIP, Addr: addr("10.96.0.1"), Port: 80, Routes: forwardCluster},
			{Kind: LoadBalancerIP, Addr: addr("198.51.100.1"), Port: 80, Routes: forwardCluster, AllowFrom: prefixes("203.0.113.0/24")},
			{Kind: LoadBalancerIP, Addr: addr("198.51.100.2"), Port: 80, Routes: forwardCluster, AllowFrom: []netip.Prefix{}},
			{Kind: NodePort, Port: 30080, Routes: forwardCluster},
		},
		Pools: [numPools][]Endpoint{
			{{Addr: addrPort("10.1.0.1:8080"), Local: true}, {Addr: addrPort("10.2.0.1:8080")}},
			{{Addr: addrPort("10.1.0.1:8080"), Local: true}},
		},
	}
	empty := &ServicePort{Name: name("empty", TCP), Family: IPv4, Frontends: []Frontend{
		{Kind: ClusterIP, Addr: addr("10.96.0.2"), Port: 80, Routes: refuse},
		// The external IP is one of the host's addresses, and the port is the NodePort of the Service web.
		{Kind: ExternalIP, Addr: addr("192.0.2.1"), Port: 30080, Routes: mixed},
	}}
	dns := &ServicePort{Name: name("dns", UDP), Family: IPv4, Frontends: []Frontend{
		{Kind: ClusterIP, Addr: addr("10.96.0.1"), Port: 53, Routes: forwardCluster},
	}}
	six := &ServicePort{Name: name("six", TCP), Family: IPv6, Frontends: []Frontend{
		{Kind: ClusterIP, Addr: addr("fd00:96::1"), Port: 80, Routes: forwardCluster},
		{Kind: NodePort, Port: 30086, Routes: forwardCluster},
	}}
	return &Plan{
		Node: &Node{
			HostAddrs:     []netip.Addr{addr("10.96.0.9"), addr("127.0.0.1"), addr("192.0.2.1"), addr("192.0.2.2"), addr("2001:db8::1")},
			NodePortAddrs: []netip.Addr{addr("192.0.2.1"), addr("2001:db8::1")},
			PodSources:    prefixes("10.1.0.0/16"),
			PodInterfaces: []string{"cni0", "veth*"},
			ServiceCIDRs:  prefixes("10.96.0.0/16"),
		},
		Services: []*ServicePort{dns, empty, six, web},
	}
}

func TestDecide(t *testing.T) {
	const outside = "203.0.113.9"
	p := testPlan()
	for name, c := range map[string]struct {
		protocol Protocol
		src, dst string
		iface    string
		verdict  Verdict
		service  string // service is "" if no Service matches
		why      string // why is a substring of the reason
	}{
		"ClusterIP":                         {TCP, outside, "10.96.0.1:80", "eth0", Forward, "web", "ClusterIP of ns/web"},
		"ClusterIP, unused port":            {TCP, outside, "10.96.0.1:81", "eth0", Reject, "", "no Service uses its port 81/TCP"},
		"ClusterIP, port of the other kind": {UDP, outside, "10.96.0.1:80", "eth0", Reject, "", "no Service uses its port 80/UDP"},
		"ClusterIP, UDP":                    {UDP, outside, "10.96.0.1:53", "eth0", Forward, "dns", "ClusterIP of ns/dns"},
		"no endpoints":                      {TCP, outside, "10.96.0.2:80", "eth0", Reject, "empty", "no ready endpoint"},
		"Service CIDR, nobody's":            {TCP, outside, "10.96.9.9:80", "eth0", Drop, "", "no Service uses this address"},
		"Service CIDR, the host's own":      {UDP, outside, "10.96.0.9:53", "eth0", Pass, "", ""},
		"somewhere else":                    {TCP, outside, "8.8.8.8:53", "eth0", Pass, "", "not an address of a Service"},
		"allowed source":                    {TCP, outside, "198.51.100.1:80", "eth0", Forward, "web", "LoadBalancerIP"},
		"another source":                    {TCP, "203.0.114.9", "198.51.100.1:80", "eth0", Drop, "web", "does not allow connections from 203.0.114.9"},
		"no source is allowed":              {TCP, outside, "198.51.100.2:80", "eth0", Drop, "web", "does not allow"},
		"external address, unused port":     {TCP, outside, "198.51.100.1:81", "eth0", Pass, "", ""},
		"NodePort where not accepted":       {TCP, outside, "192.0.2.2:30080", "eth0", Pass, "", "30080 is ns/web's NodePort, but only 192.0.2.1 accepts NodePorts (see proxy.nodeport_addresses)"},
		"NodePort on loopback":              {TCP, "127.0.0.1", "127.0.0.1:30080", "", Pass, "", "30080 is ns/web's NodePort, but only 192.0.2.1 accepts NodePorts"},
		"NodePort of another host":          {TCP, outside, "192.0.2.99:30080", "eth0", Pass, "", "192.0.2.99 is not an address of this host, although 30080 is ns/web's NodePort"},
		"NodePort, over another protocol":   {UDP, outside, "192.0.2.2:30080", "eth0", Pass, "", "not an address of a Service"},
		"loopback from outside":             {TCP, outside, "127.0.0.1:30080", "eth0", Drop, "", "martian"},
		"from loopback, from outside":       {TCP, "127.0.0.1", "10.96.0.1:80", "eth0", Drop, "", "martian"},
		"IPv6 loopback from a pod":          {TCP, "2001:db8:9::9", "[::1]:30086", "cni0", Drop, "", "martian"},
		"address before NodePort":           {TCP, outside, "192.0.2.1:30080", "eth0", Drop, "empty", "none on this host"},
		"address before NodePort, from pod": {TCP, "10.1.5.5", "192.0.2.1:30080", "veth7", Forward, "empty", ""},
		"NodePort of the other family":      {TCP, outside, "192.0.2.1:30086", "eth0", Pass, "", ""},
		"NodePort, IPv6":                    {TCP, "2001:db8:9::9", "[2001:db8::1]:30086", "eth0", Forward, "six", "NodePort of ns/six"},
		"IPv6":                              {TCP, "2001:db8:9::9", "[fd00:96::1]:80", "eth0", Forward, "six", ""},
		"IPv6, unused port":                 {TCP, "2001:db8:9::9", "[fd00:96::1]:81", "eth0", Reject, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			d := p.Decide(Packet{c.protocol, addr(c.src), addrPort(c.dst), c.iface})
			got := ""
			if d.Service != nil {
				got = d.Service.Name.Name
			}
			if d.Verdict != c.verdict || got != c.service || !strings.Contains(d.Reason, c.why) {
				t.Errorf("got %s of %q (%s), want %s of %q (… %s …)", d.Verdict, got, d.Reason, c.verdict, c.service,
					c.why)
			}
			if (d.Frontend == nil) != (d.Service == nil) || d.Verdict != Forward && (d.Endpoints != nil || d.SNAT) {
				t.Errorf("inconsistent: %+v", d)
			}
		})
	}
}

// Without an external IP at the same address and port, connections reach the NodePort. Connections to loopback never
// reach the NodePort, even if Node.NodePortAddrs lists the loopback address.
func TestDecideNodePort(t *testing.T) {
	p := testPlan()
	p.Services = p.Services[3:]
	if d := p.Decide(Packet{TCP, addr("203.0.113.9"), addrPort("192.0.2.1:30080"), "eth0"}); d.Verdict != Forward ||
		d.Frontend.Kind != NodePort {
		t.Errorf("%+v", d)
	}
	p.Node.NodePortAddrs = nil
	if d := p.Decide(Packet{TCP, addr("203.0.113.9"), addrPort("192.0.2.1:30080"), "eth0"}); d.Verdict != Pass ||
		!strings.Contains(d.Reason, "has no IPv4 address") {
		t.Errorf("NodePorts are accepted nowhere: %+v", d)
	}
	p.Node.NodePortAddrs = append(p.Node.NodePortAddrs, addr("127.0.0.1"))
	if d := p.Decide(Packet{TCP, addr("127.0.0.1"), addrPort("127.0.0.1:30080"), ""}); d.Verdict != Pass {
		t.Errorf("loopback: %+v", d)
	}
}

func TestDecideFollowsOrigin(t *testing.T) {
	p := testPlan()
	for name, c := range map[string]struct {
		src, iface string
		origin     Origin
		pool       Pool
		snat       bool
	}{
		"pod by address":            {"10.1.0.7", "eth0", FromPod, ClusterPool, false},
		"pod by interface":          {"203.0.113.9", "cni0", FromPod, ClusterPool, false},
		"pod by interface prefix":   {"203.0.113.9", "veth42", FromPod, ClusterPool, false},
		"interface of another name": {"203.0.113.9", "cni01", FromOutside, LocalPool, false},
		"made by the host":          {"203.0.113.9", "", FromHost, ClusterPool, true},
		"the host's address":        {"192.0.2.2", "eth0", FromHost, ClusterPool, true},
		"a pod on its own":          {"10.1.0.7", "", FromPod, ClusterPool, false},
		"outside":                   {"203.0.113.9", "eth0", FromOutside, LocalPool, false},
	} {
		t.Run(name, func(t *testing.T) {
			d := p.Decide(Packet{TCP, addr(c.src), addrPort("10.96.0.1:80"), c.iface})
			if d.Origin != c.origin || d.Pool != c.pool || d.SNAT != c.snat ||
				len(d.Endpoints) != len(p.Services[3].Pools[c.pool]) {
				t.Errorf("got %+v", d)
			}
		})
	}
}

func TestSNATFor(t *testing.T) {
	here, there := Endpoint{Addr: addrPort("10.1.0.1:8080"), Local: true}, Endpoint{Addr: addrPort("10.2.0.1:8080")}
	for name, c := range map[string]struct {
		snat     bool
		src      string
		endpoint Endpoint
		want     bool
	}{
		"masqueraded":               {true, "10.1.0.9", there, true},
		"not masqueraded":           {false, "10.1.0.9", here, false},
		"hairpin":                   {false, "10.1.0.1", here, true},
		"its address, but far away": {false, "10.2.0.1", there, false},
	} {
		if got := (Decision{SNAT: c.snat}).SNATFor(addr(c.src), c.endpoint); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		ServicePortName{"ns", "svc", "http", TCP}.String(): "ns/svc:http/TCP",
		ServicePortName{"ns", "svc", "", SCTP}.String():    "ns/svc/SCTP",
		Protocol(1).String():                               "protocol 1",
		IPv6.String():                                      "IPv6",
		FamilyOf(addr("192.0.2.1")).String():               "IPv4",
		NodePort.String() + LoadBalancerIP.String():        "NodePortLoadBalancerIP",
		FromPod.String() + FromOutside.String():            "podoutside",
		Pass.String() + Forward.String():                   "passforward",
		LocalPool.String() + ClusterPool.String():          "localcluster",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	for _, p := range []Protocol{TCP, UDP, SCTP} {
		if got, ok := ParseProtocol(p.String()); !ok || got != p {
			t.Errorf("%s is not read back", p)
		}
	}
	if _, ok := ParseProtocol("tcp"); ok {
		t.Error("a protocol in lower case is none of Kubernetes'")
	}
}
