package planner

import (
	"net/netip"
	"strings"
	"testing"

	"edgeway/daemon/config"
	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// The test tables use two endpoints: epHere is on this host, and epThere is on another host.
const (
	epHere  = "10.1.0.1"
	epThere = "10.2.0.1"
)

// packetTo returns the first packet of a connection from an origin to a frontend of "svc".
func packetTo(origin, frontend string) plan.Packet {
	p := plan.Packet{Protocol: plan.TCP}
	switch origin {
	case "pod":
		p.Src, p.InInterface = ip(podIP), "veth1"
	case "host":
		p.Src = ip(hostIP)
	case "outside":
		p.Src, p.InInterface = ip(outsideIP), "eth0"
	}
	switch frontend {
	case "ClusterIP":
		p.Dst = netip.MustParseAddrPort("10.96.0.10:80")
	case "ExternalIP":
		p.Dst = netip.MustParseAddrPort("198.51.100.10:80")
	case "LoadBalancerIP":
		p.Dst = netip.MustParseAddrPort("198.51.100.20:80")
	case "NodePort":
		p.Dst = netip.MustParseAddrPort(hostIP + ":30080")
	}
	return p
}

// outcome formats a decision. For the verdict Forward, outcome formats the endpoints as "here", "there" or "any", with
// "+" if the proxy rewrites the source address. For any other verdict, outcome returns the verdict's name.
func outcome(d plan.Decision) string {
	if d.Verdict != plan.Forward {
		return d.Verdict.String()
	}
	names := map[string]string{epHere: "here", epThere: "there", epHere + "," + epThere: "any"}
	out := names[strings.Join(addrsOf(d.Endpoints), ",")]
	if d.SNAT {
		out += "+"
	}
	return out
}

// Traffic policies determine which endpoints a connection can reach and whether the proxy rewrites its source address.
// The table's columns are the four combinations of pod detection and masquerade_all.
func TestTrafficPolicies(t *testing.T) {
	settings := [4]Options{testOptions(), testOptions(), testOptions(), testOptions()}
	settings[1].Proxy.LocalDetection, settings[3].Proxy.LocalDetection = config.DetectNone, config.DetectNone
	settings[2].Proxy.MasqueradeAll, settings[3].Proxy.MasqueradeAll = true, true
	type policies struct{ internal, external bool } // Local
	same := func(s string) [4]string { return [4]string{s, s, s, s} }
	for _, row := range []struct {
		local    policies
		origin   string
		frontend string
		want     [4]string
	}{
		{policies{}, "pod", "ClusterIP", [4]string{"any", "any", "any+", "any+"}},
		{policies{}, "pod", "external", same("any+")},
		{policies{}, "host", "ClusterIP", [4]string{"any+", "any", "any+", "any+"}},
		{policies{}, "host", "external", same("any+")},
		{policies{}, "outside", "ClusterIP", [4]string{"any+", "any", "any+", "any+"}},
		{policies{}, "outside", "external", same("any+")},

		{policies{external: true}, "pod", "ClusterIP", [4]string{"any", "any", "any+", "any+"}},
		{policies{external: true}, "pod", "external", [4]string{"any", "here", "any", "here"}},
		{policies{external: true}, "host", "ClusterIP", [4]string{"any+", "any", "any+", "any+"}},
		{policies{external: true}, "host", "external", same("any+")},
		{policies{external: true}, "outside", "ClusterIP", [4]string{"any+", "any", "any+", "any+"}},
		{policies{external: true}, "outside", "external", same("here")},

		{policies{internal: true}, "pod", "ClusterIP", [4]string{"here", "here", "here+", "here+"}},
		{policies{internal: true}, "pod", "external", same("any+")},
		{policies{internal: true}, "host", "ClusterIP", [4]string{"here+", "here", "here+", "here+"}},
		{policies{internal: true}, "host", "external", same("any+")},
		{policies{internal: true}, "outside", "ClusterIP", [4]string{"here+", "here", "here+", "here+"}},
		{policies{internal: true}, "outside", "external", same("any+")},

		{policies{true, true}, "pod", "ClusterIP", [4]string{"here", "here", "here+", "here+"}},
		{policies{true, true}, "pod", "external", [4]string{"any", "here", "any", "here"}},
		{policies{true, true}, "host", "external", same("any+")},
		{policies{true, true}, "outside", "external", same("here")},
	} {
		for i, opts := range settings {
			svc := testService("svc", everywhere, func(s *source.Service) {
				s.InternalLocal, s.ExternalLocal = row.local.internal, row.local.external
			})
			w := newWorld(t, opts, svc, testSlice("svc", ep(epHere, "here"), ep(epThere)))
			frontends := []string{row.frontend}
			if row.frontend == "external" {
				frontends = []string{"ExternalIP", "LoadBalancerIP", "NodePort"}
			}
			for _, f := range frontends {
				if got := outcome(w.plan.Decide(packetTo(row.origin, f))); got != row.want[i] {
					t.Errorf("local %+v, setting %d, %s to %s: got %s, want %s", row.local, i, row.origin, f, got,
						row.want[i])
				}
			}
		}
	}
}

// The proxy forwards, rejects or drops connections depending on which endpoints are missing or terminating. The table
// has a column for each origin. Pod detection is enabled.
func TestMissingAndTerminatingEndpoints(t *testing.T) {
	internal := func(s *source.Service) { s.InternalLocal = true }
	external := func(s *source.Service) { s.ExternalLocal = true }
	cluster := func(*source.Service) {}
	all := func(s string) [3]string { return [3]string{s, s, s} }
	for name, c := range map[string]struct {
		policy            func(*source.Service)
		endpoints         []source.Endpoint
		clusterIP, others [3]string // from a pod, from the host, from outside
	}{
		"none anywhere":                         {cluster, nil, all("reject"), all("reject")},
		"none anywhere, internal Local":         {internal, nil, all("reject"), all("reject")},
		"none anywhere, external Local":         {external, nil, all("reject"), all("reject")},
		"unready counts as none":                {external, []source.Endpoint{ep(epHere, "here", "unready")}, all("reject"), all("reject")},
		"gone counts as none":                   {external, []source.Endpoint{ep(epHere, "here", "gone")}, all("reject"), all("reject")},
		"none here, internal Local":             {internal, []source.Endpoint{ep(epThere)}, all("drop"), all("there+")},
		"none here, external Local":             {external, []source.Endpoint{ep(epThere)}, [3]string{"there", "there+", "there+"}, [3]string{"there", "there+", "drop"}},
		"no node name is not here":              {internal, []source.Endpoint{ep(epThere, "nowhere")}, all("drop"), all("there+")},
		"one stops elsewhere":                   {internal, []source.Endpoint{ep(epThere, "stopping")}, all("drop"), all("there+")},
		"one stops here":                        {external, []source.Endpoint{ep(epHere, "here", "stopping")}, [3]string{"here", "here+", "here+"}, [3]string{"here", "here+", "here"}},
		"stopping is second to ready":           {cluster, []source.Endpoint{ep(epHere, "here", "stopping"), ep(epThere)}, [3]string{"there", "there+", "there+"}, all("there+")},
		"each pool falls back by itself":        {external, []source.Endpoint{ep(epHere, "here", "stopping"), ep(epThere)}, [3]string{"there", "there+", "there+"}, [3]string{"there", "there+", "here"}},
		"each pool falls back by itself, again": {internal, []source.Endpoint{ep(epHere, "here"), ep(epThere, "stopping")}, [3]string{"here", "here+", "here+"}, all("here+")},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, testOptions(), testService("svc", everywhere, c.policy), testSlice("svc", c.endpoints...))
			for i, origin := range []string{"pod", "host", "outside"} {
				for _, f := range []string{"ClusterIP", "ExternalIP", "LoadBalancerIP", "NodePort"} {
					want := c.others[i]
					if f == "ClusterIP" {
						want = c.clusterIP[i]
					}
					if got := outcome(w.plan.Decide(packetTo(origin, f))); got != want {
						t.Errorf("%s to %s: got %s, want %s", origin, f, got, want)
					}
				}
			}
		})
	}
}

// On a host without a Node object and without a local endpoint, a Local policy drops connections, unless local_policy
// is "cluster".
func TestLocalPolicyWithoutNodeObject(t *testing.T) {
	local := func(s *source.Service) { s.InternalLocal, s.ExternalLocal = true, true }
	node := &source.Node{Name: hostName}
	for name, c := range map[string]struct {
		policy              config.LocalPolicy
		node                source.Object
		endpoint            source.Endpoint
		clusterIP, nodePort string // from outside
	}{
		"drop":                             {config.LocalDrop, nil, ep(epThere), "drop", "drop"},
		"cluster":                          {config.LocalCluster, nil, ep(epThere), "there+", "there+"},
		"cluster, but the host is a Node":  {config.LocalCluster, node, ep(epThere), "drop", "drop"},
		"cluster, but an endpoint is here": {config.LocalCluster, nil, ep(epHere, "here"), "here+", "here"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions()
			opts.Node.LocalPolicy = c.policy
			w := newWorld(t, opts, testService("svc", everywhere, local), testSlice("svc", c.endpoint))
			if c.node != nil {
				w.put(c.node)
			}
			if got := outcome(w.plan.Decide(packetTo("outside", "ClusterIP"))); got != c.clusterIP {
				t.Errorf("ClusterIP: got %s, want %s", got, c.clusterIP)
			}
			if got := outcome(w.plan.Decide(packetTo("outside", "NodePort"))); got != c.nodePort {
				t.Errorf("NodePort: got %s, want %s", got, c.nodePort)
			}
		})
	}
}

// If an endpoint on this host connects to its own Service, the proxy rewrites the source address only if the chosen
// endpoint is the client itself.
func TestHairpin(t *testing.T) {
	w := newWorld(t, testOptions(), testService("svc"), testSlice("svc", ep(epHere, "here"), ep(epThere)))
	p := packetTo("pod", "ClusterIP")
	p.Src = ip(epHere)
	d := w.plan.Decide(p)
	if d.SNAT || !d.SNATFor(p.Src, d.Endpoints[0]) || d.SNATFor(p.Src, d.Endpoints[1]) {
		t.Errorf("hairpin: %+v", d)
	}
}

func TestUnusedPortsAndAddresses(t *testing.T) {
	opts := testOptions()
	opts.Proxy.ServiceCIDRs = cidrs("10.96.0.0/24")
	w := newWorld(t, opts, testService("svc"), testSlice("svc", ep(epThere)))
	for dst, want := range map[string]plan.Verdict{
		"10.96.0.10:80": plan.Forward, "10.96.0.10:81": plan.Reject, "10.96.0.11:80": plan.Drop, "10.97.0.11:80": plan.Pass,
	} {
		p := packetTo("host", "")
		p.Dst = netip.MustParseAddrPort(dst)
		if got := w.plan.Decide(p).Verdict; got != want {
			t.Errorf("%s: got %s, want %s", dst, got, want)
		}
	}
	w.put(&source.ServiceCIDR{Name: "more", CIDRs: cidrs("10.97.0.0/24")})
	p := packetTo("host", "")
	p.Dst = netip.MustParseAddrPort("10.97.0.11:80")
	if got := w.plan.Decide(p).Verdict; got != plan.Drop {
		t.Errorf("an address of a ServiceCIDR that was added: %s", got)
	}
}
