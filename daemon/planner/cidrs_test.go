package planner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

// No external IP may be in a ClusterIP range, regardless of the source of the range and of whether Edgeway drops
// connections to the range's unused addresses. A load-balancer address may be in a ClusterIP range, because only
// controllers write a Service's status.
func TestExternalIPInServiceCIDR(t *testing.T) {
	opts := testOptions()
	opts.Proxy.ServiceCIDRs = cidrs("10.96.0.0/16")
	w := newWorld(t, opts, apiServer("10.98.0.1"), &source.ServiceCIDR{Name: "more", CIDRs: cidrs("10.97.0.0/16")},
		&source.ServiceCIDR{Name: "server", CIDRs: cidrs("10.98.0.0/16")},
		testService("tenant", func(s *source.Service) {
			s.ExternalIPs = ips("10.96.0.55", "10.97.0.55", "10.98.0.55", "10.99.0.55")
			s.LoadBalancerIPs = ips("10.96.0.56")
		}))
	w.wantFrontends("tenant", "ClusterIP 10.96.0.10:80", "ExternalIP 10.99.0.55:80", "LoadBalancerIP 10.96.0.56:80")
	w.problems = w.problems[1:] // skip the problem of the range that contains the API server
	const why = " is in a range reserved for ClusterIPs"
	w.wantProblems("Service ns/tenant: spec.externalIPs: 10.96.0.55"+why,
		"Service ns/tenant: spec.externalIPs: 10.97.0.55"+why, "Service ns/tenant: spec.externalIPs: 10.98.0.55"+why)

	w.remove(&source.ServiceCIDR{Name: "more"})
	w.wantFrontends("tenant", "ClusterIP 10.96.0.10:80", "ExternalIP 10.97.0.55:80", "ExternalIP 10.99.0.55:80",
		"LoadBalancerIP 10.96.0.56:80")
}

// Edgeway ignores a ServiceCIDR object that overlaps a network of this host, because the host could not reach its
// neighbours if Edgeway dropped connections to the range's unused addresses. No setting allows a ServiceCIDR object
// that overlaps a network of this host.
func TestServiceCIDROverlappingHostNetwork(t *testing.T) {
	for name, c := range map[string]struct {
		object, configured string
		want               []netip.Prefix
	}{
		"the network":            {object: "192.0.2.0/24"},
		"a wider range":          {object: "192.0.0.0/8"},
		"half of all":            {object: "128.0.0.0/1"},
		"a part of the network":  {object: "192.0.2.128/25"},
		"another network":        {object: "192.0.3.0/24", want: cidrs("192.0.3.0/24")},
		"IPv6":                   {object: "2001:db8::/48"},
		"an address of a tunnel": {object: "10.8.0.0/16"},
		"beside it":              {object: "10.9.0.0/16", want: cidrs("10.9.0.0/16")},
		"set by the operator":    {object: "192.0.2.0/24", configured: "192.0.2.0/24"},
		"within what is set":     {object: "192.0.2.0/24", configured: "192.0.0.0/16"},
		"another one is set":     {"192.0.2.0/24", "10.96.0.0/16", cidrs("10.96.0.0/16")},
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions()
			if c.configured != "" {
				opts.Proxy.ServiceCIDRs = cidrs(c.configured)
			}
			w := newWorld(t, opts)
			w.host = testHost()
			w.host.Networks = cidrs("10.8.0.2/32", "192.0.2.0/24", "2001:db8::/64")
			w.put(&source.ServiceCIDR{Name: "hostile", CIDRs: cidrs(c.object)},
				testService("svc", func(s *source.Service) { s.ExternalIPs = ips("192.0.77.1") }))
			if got := w.plan.Node.ServiceCIDRs; !slices.Equal(got, c.want) {
				t.Errorf("Service CIDRs %v, want %v", got, c.want)
			}
			ignored := slices.ContainsFunc(w.problems, func(p fault.Fault) bool {
				return p.Object.Name == "hostile" &&
					strings.Contains(p.Message, "a network of this host: Edgeway ignores the range")
			})
			if fits := slices.Equal(c.want, cidrs(c.object)); ignored == fits {
				t.Errorf("ignored %v; problems %v", ignored, w.problems)
			}
			if c.configured == "" { // Edgeway serves external IPs in the ignored range
				w.wantFrontends("svc", "ClusterIP 10.96.0.10:80", "ExternalIP 192.0.77.1:80")
			}
		})
	}
}

// Edgeway drops connections to unused addresses in a configured range if the range overlaps a route of this host, but
// not if it overlaps a network of this host.
func TestConfiguredCIDROverlappingHostNetwork(t *testing.T) {
	const setting = "proxy.service_cidrs = "
	for name, c := range map[string]struct {
		ranges, drop, id, object, fix string
	}{
		"its own":        {ranges: "10.96.0.0/16", drop: "10.96.0.0/16"},
		"the network":    {ranges: "192.0.2.0/24", id: ServiceRangeNetworkID, object: "192.0.2.0/24", fix: setting + "[]"},
		"a wider range":  {ranges: "192.0.0.0/8 10.96.0.0/16", drop: "10.96.0.0/16", id: ServiceRangeNetworkID, object: "192.0.0.0/8", fix: setting + `["10.96.0.0/16"]`},
		"a part of it":   {ranges: "2001:db8::/108", id: ServiceRangeNetworkID, object: "2001:db8::/108", fix: setting + "[]"},
		"a route":        {ranges: "10.97.0.0/16", drop: "10.97.0.0/16", id: ServiceRangeRouteID, object: "10.0.0.0/8 via 192.0.2.7 on eth0", fix: setting + "[]  # if a host has an address in 10.97.0.0/16"},
		"a route and it": {ranges: "172.16.0.0/12", id: ServiceRangeNetworkID, object: "172.17.0.0/16", fix: setting + "[]"},
	} {
		t.Run(name, func(t *testing.T) {
			opts := testOptions()
			opts.Proxy.ServiceCIDRs = cidrs(strings.Fields(c.ranges)...)
			w := newWorld(t, opts)
			w.host = testHost()
			w.host.Networks = cidrs("172.17.0.0/16", "192.0.2.0/24", "2001:db8::/64")
			w.host.Routes = []nodeinfo.Route{
				{Range: cidrs("10.97.0.0/16")[0], To: cidrs("10.0.0.0/8")[0], Gateway: ip("192.0.2.7"), Interface: "eth0"},
				{Range: cidrs("172.16.0.0/12")[0], To: cidrs("172.16.0.0/12")[0], Interface: "wg0"},
			}
			w.put(testService("svc", func(s *source.Service) { s.ExternalIPs = ips(strings.Split(c.ranges, "/")[0]) }))
			if got := w.plan.Node.ServiceCIDRs; !slices.Equal(got, cidrs(strings.Fields(c.drop)...)) {
				t.Errorf("Service CIDRs %v, want %q", got, c.drop)
			}
			w.wantFrontends("svc", "ClusterIP 10.96.0.10:80") // Edgeway refuses external IPs in configured ranges
			w.problems = slices.DeleteFunc(w.problems, func(p fault.Fault) bool { return p.ID == source.ObjectFaultID })
			if c.id == "" && len(w.problems) == 0 {
				return
			}
			if len(w.problems) != 1 || w.problems[0].ID != c.id || w.problems[0].Fix != c.fix ||
				!strings.Contains(w.problems[0].Message, c.object) {
				t.Errorf("problems %+v", w.problems)
			}
			if alone := ServiceCIDRFaults(opts.Proxy.ServiceCIDRs, w.host); !slices.Equal(alone, w.problems) {
				t.Errorf("without objects: %+v", alone)
			}
		})
	}
}
