package doctor

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/proxiers/plan"
)

func TestForwardingCheck(t *testing.T) {
	nodePort := plan.Frontend{Kind: plan.NodePort, Port: 30080, Routes: forward(plan.ClusterPool)}
	const remote, own = "10.244.1.11:8080", "192.0.2.10:8080"
	for name, c := range map[string]struct {
		frontend plan.Frontend
		endpoint string
		change   func(*plan.Node)
		want     string
	}{
		"NodePort":                         {nodePort, remote, nil, "problem: net.ipv4.ip_forward is 0 … NodePort 30080 of default/web … | sysctl -w net.ipv4.ip_forward=1"},
		"NodePort of the host's endpoint":  {nodePort, own, nil, "ok: net.ipv4.ip_forward is 0, and no Service needs forwarding"},
		"NodePort nowhere":                 {nodePort, remote, func(n *plan.Node) { n.NodePortAddrs = nil }, "ok: "},
		"ClusterIP":                        {frontend(plan.ClusterIP, "10.96.0.10"), remote, nil, "warning: … ClusterIP 10.96.0.10:80 of default/web … this host's own connections work"},
		"ClusterIP for pods":               {frontend(plan.ClusterIP, "10.96.0.10"), remote, func(n *plan.Node) { n.PodInterfaces = []string{"cni0"} }, "problem: … from pods"},
		"load balancer elsewhere":          {frontend(plan.LoadBalancerIP, "203.0.113.9"), remote, nil, "warning: … LoadBalancerIP 203.0.113.9:80"},
		"load balancer's address on a NIC": {frontend(plan.LoadBalancerIP, "192.0.2.10"), remote, nil, "problem: … LoadBalancerIP 192.0.2.10:80 … from outside"},
		"dropped from outside":             {plan.Frontend{Kind: plan.NodePort, Port: 1, Routes: [3]plan.Route{plan.FromOutside: {Verdict: plan.Drop}}}, remote, nil, "ok: "},
	} {
		t.Run(name, func(t *testing.T) {
			h, f := testHost(servicePort("web", []plan.Frontend{c.frontend}, c.endpoint))
			if c.change != nil {
				c.change(h.Plan.Node)
			}
			wantFindings(t, h, "ip-forward", "ok: … net.ipv4.ip_forward")
			f.set("ipv4/ip_forward", "0")
			wantFindings(t, h, "ip-forward", c.want)
			wantFindings(t, h, "ipv6-forward") // the plan contains no Service of this family
		})
	}
}

// A host that becomes an IPv6 router ignores router advertisements and loses its default route. To keep the default
// route, the fix also sets accept_ra to 2.
func TestIPv6ForwardingFixKeepsDefaultRoute(t *testing.T) {
	svc := servicePort("web", []plan.Frontend{{Kind: plan.NodePort, Port: 30080, Routes: forward(plan.ClusterPool)}},
		"[fd00:1::1]:8080")
	h, f := testHost(svc)
	h.Plan.Node.NodePortAddrs = append(h.Plan.Node.NodePortAddrs, addr("2001:db8::10"))
	f.set("ipv6/conf/all/forwarding", "0")
	wantFindings(t, h, "ipv6-forward", "problem: … | sysctl -w net.ipv6.conf.all.forwarding=1")
	f.advertised = []string{"eth0"}
	f.set("ipv6/conf/eth0/accept_ra", "1")
	wantFindings(t, h, "ipv6-forward", "problem: … | sysctl -w net.ipv6.conf.eth0.accept_ra=2 && sysctl -w net.ipv6.conf.all.forwarding=1")
	f.set("ipv6/conf/eth0/accept_ra", "2")
	wantFindings(t, h, "ipv6-forward", "problem: … | sysctl -w net.ipv6.conf.all.forwarding=1")
}

func TestRoutesToServices(t *testing.T) {
	h, f := testHost(
		servicePort("web", []plan.Frontend{
			frontend(plan.ClusterIP, "10.96.0.10"), frontend(plan.ExternalIP, "198.51.100.7"),
			frontend(plan.ExternalIP, "198.51.100.8"),
			frontend(plan.LoadBalancerIP, "192.0.2.10"), // the host owns this address
			{Kind: plan.LoadBalancerIP, Addr: addr("203.0.113.1"), Port: 80, Routes: [3]plan.Route{{}, {Verdict: plan.Reject}, {}}},
		}, "192.0.2.50:8080"),
		servicePort("web6", []plan.Frontend{frontend(plan.ClusterIP, "fd00:96::10")}, "[fd00:1::1]:8080"),
	)
	noIPv6 := `warning: … the Service range fd00:96::/108 (network is unreachable), because this host has no IPv6 address | proxy.ip_families = ["IPv4"]`
	wantFindings(t, h, "route-services", noIPv6)

	delete(f.hops, "0.0.0.0/0")
	h.Config.Routes.Services = config.RoutesNever
	wantFindings(t, h, "route-services", `problem: … 10.96.0.0/12 … dev eth0 src 192.0.2.10  # or set routes.services = "auto"`, "problem: ", "problem: ", noIPv6)
	h.Config.Routes.Services = config.RoutesAuto
	wantFindings(t, h, "route-services",
		"problem: … 10.96.0.0/12 … 10.96.0.10 … default/web/TCP … | ip route replace 10.96.0.0/12 dev eth0 src 192.0.2.10",
		"problem: … ExternalIP 198.51.100.7 … | ip route replace 198.51.100.7 dev eth0 src 192.0.2.10",
		"problem: … ExternalIP 198.51.100.8", noIPv6)

	h.Plan.Node.HostAddrs = slices.Insert(h.Plan.Node.HostAddrs, 3, addr("fd00:2::10"))
	wantFindings(t, h, "route-services", "problem: ", "problem: ", "problem: ",
		"problem: … | ip -6 route replace fd00:96::/108 dev eth0 src fd00:2::10")
	f.hops["10.96.0.0/12"] = nodeinfo.NextHop{Interface: "eth7", NoCarrier: true, Source: addr("192.0.2.10")}
	wantFindings(t, h, "route-services", "problem: … ExternalIP", "problem: … ExternalIP", "problem: … fd00:96::")
}

// The suggested route to Services has the same source address as the route to the endpoint.
func TestSuggestedServiceRouteSource(t *testing.T) {
	h, f := testHost(servicePort("web", []plan.Frontend{frontend(plan.ClusterIP, "10.96.0.10")}, "10.77.0.5:8080"))
	f.hops["10.77.0.0/16"] = on("eth1", "10.77.0.1")
	delete(f.hops, "0.0.0.0/0")
	wantFindings(t, h, "route-services", "problem: … | ip route replace 10.96.0.0/12 dev eth1 src 10.77.0.1")
	f.hops["0.0.0.0/0"] = on("lo", "127.0.0.1")
	wantFindings(t, h, "route-services", "problem: … 127.0.0.1 … | ip route replace")
}

func TestRoutesToEndpoints(t *testing.T) {
	clusterIP := []plan.Frontend{frontend(plan.ClusterIP, "10.96.0.10")}
	h, f := testHost(
		servicePort("web", clusterIP, "10.244.1.11:8080", "10.244.1.12:8080", "10.244.2.7:8080", "192.0.2.10:8080"),
		servicePort("db", clusterIP, "10.244.3.5:5432"),
	)
	wantFindings(t, h, "route-endpoints", "ok: … 3 networks")

	delete(f.hops, "0.0.0.0/0")
	f.hops["10.244.2.0/24"] = nodeinfo.NextHop{Interface: "eth1", Source: addr("192.0.2.10"), NoCarrier: true}
	wantFindings(t, h, "route-endpoints",
		"problem: … 10.244.1.0/24 … 10.244.1.11 … default/web/TCP … | ip route replace 10.244.1.0/24 via $ROUTER  # ROUTER: the address of the host that runs the endpoints",
		"problem: … 10.244.2.7 … default/web/TCP … eth1 … | ip -brief link show dev eth1",
		"problem: … 10.244.3.5 … default/db/TCP … | ip route replace 10.244.3.5 via $ROUTER")
	f.hops["10.244.1.0/24"] = on("eth0", "192.0.2.10")
	f.hops["10.244.2.0/24"] = on("eth1", "192.0.2.10")
	wantFindings(t, h, "route-endpoints", "problem: … 10.244.3.5")
}

// Some network plugins assign each node a pod range smaller than /24.
func TestRoutesToSmallRanges(t *testing.T) {
	clusterIP := []plan.Frontend{frontend(plan.ClusterIP, "10.96.0.10")}
	for _, c := range []struct{ route, missing string }{
		{"10.244.1.0/26", "10.244.1.71"},
		{"10.244.1.64/26", "10.244.1.11"},
	} {
		h, f := testHost(servicePort("web", clusterIP, "10.244.1.11:8080", "10.244.1.70:8080", "10.244.1.71:8080"))
		delete(f.hops, "0.0.0.0/0")
		f.hops[c.route] = on("eth0", "192.0.2.10")
		wantFindings(t, h, "route-endpoints", "problem: … "+c.missing+" … | ip route replace "+c.missing+" via $ROUTER")
	}
}

// Because the cluster determines the number of endpoints, the check limits the number of route lookups in each run. A
// run also reports only a few findings.
func TestRouteLookupsAreBounded(t *testing.T) {
	var endpoints []string
	for i := range 100 {
		for j := range 50 {
			endpoints = append(endpoints, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, byte(i), byte(j)}),
				80).String())
		}
	}
	h, f := testHost(servicePort("web", []plan.Frontend{frontend(plan.ClusterIP, "10.96.0.10")}, endpoints...))
	clear(f.hops)
	for limit, more := range map[int]string{1000: "; and 90 more", 50: "; and 40 more"} {
		h.MaxLookups, f.asked = limit, 0
		got := runCheck(t, h, "route-endpoints")
		if len(got) != 10 || !strings.Contains(got[9], more) || f.asked > limit {
			t.Errorf("%d lookups, %d findings:\n%s", f.asked, len(got), strings.Join(got, "\n"))
		}
	}
}

// Operators run a suggested fix unchanged, so the fix must quote interface names.
func TestFixQuotesInterfaceNames(t *testing.T) {
	const name, word = "it's;reboot", `'it'\''s;reboot'`
	h, f := testHost(servicePort("web", []plan.Frontend{frontend(plan.ClusterIP, "fd00:96::10")},
		"[fd00:244::11]:8080"))
	h.Plan.Node.HostAddrs = slices.Insert(h.Plan.Node.HostAddrs, 3, addr("fd00:2::10"))
	f.hops["fd00:244::/64"] = nodeinfo.NextHop{Interface: name, Source: addr("fd00:2::10"), NoCarrier: true}
	wantFindings(t, h, "route-endpoints", "problem: … | ip -brief link show dev "+word+"  #")
	wantFindings(t, h, "route-services", "problem: … | ip -6 route replace fd00:96::/108 dev "+word+" src fd00:2::10")
}

// All endpoints behind the default router cause a single notice rather than problems, because that router may have
// routes to them. Endpoints with a more specific route cause no notice.
func TestEndpointsBehindDefaultRoute(t *testing.T) {
	h, f := testHost(servicePort("web", []plan.Frontend{frontend(plan.ClusterIP, "10.96.0.10")},
		"10.244.1.11:8080", "10.244.1.12:8080", "10.244.2.7:8080", "192.0.2.50:8080"))
	byDefault := f.hops["0.0.0.0/0"]
	byDefault.Default = true
	f.hops["0.0.0.0/0"] = byDefault
	wantFindings(t, h, "route-endpoints",
		"notice: … via 192.0.2.1 on eth0 … 10.244.1.0/24, 10.244.2.0/24: … | edgeway doctor --connect default/web --trace")
	f.hops["10.244.0.0/16"] = via("192.0.2.2", "eth0", "192.0.2.10")
	wantFindings(t, h, "route-endpoints", "ok: … 3 networks")
}
