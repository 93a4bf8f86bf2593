package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func addrs(list ...string) (out []netip.Addr) {
	for _, a := range list {
		out = append(out, netip.MustParseAddr(a))
	}
	return out
}

// serviceWithEndpoints returns a Service with port 80/TCP and an EndpointSlice. A "-" before an endpoint marks it as
// not ready.
func serviceWithEndpoints(name, clusterIP string, endpoints ...string) *tracker.Service {
	svc := &tracker.Service{Spec: &source.Service{
		Namespace: "shop", Name: name, Manifest: true, ClusterIPs: addrs(clusterIP),
		Ports: []source.ServicePort{{Protocol: plan.TCP, Port: 80}},
	}}
	if endpoints == nil {
		return svc
	}
	slice := &source.EndpointSlice{
		Namespace: "shop", Name: name + "-1", Service: name, Family: plan.IPv4, Manifest: true,
		Ports: []source.SlicePort{{Protocol: plan.TCP, Port: 8080}},
	}
	for _, e := range endpoints {
		addr, unready := strings.CutPrefix(e, "-")
		slice.Endpoints = append(slice.Endpoints, source.Endpoint{
			Addr: netip.MustParseAddr(addr), Ready: !unready, Serving: !unready,
		})
	}
	svc.Slices = []*source.EndpointSlice{slice}
	return svc
}

func planned(services ...*tracker.Service) ServiceInput {
	snap := &tracker.Snapshot{All: true, Generation: 1}
	for _, svc := range services {
		snap.Services = append(snap.Services, svc)
		snap.Problems = append(snap.Problems, svc.Spec.Faults...)
		for _, s := range svc.Slices {
			snap.Problems = append(snap.Problems, s.Faults...)
		}
	}
	slices.SortFunc(snap.Services, func(a, b *tracker.Service) int { return a.Name().Compare(b.Name()) })
	proxy := config.Proxy{NodePortAddresses: config.NodePortAddresses{Primary: true}}
	p, problems := planner.New(planner.Options{Proxy: proxy}).
		Plan(snap, &nodeinfo.Host{
			Addrs: []nodeinfo.Addr{{Addr: netip.MustParseAddr("192.0.2.7"), Interface: "eth0", Primary: true}},
		}, nil)
	return ServiceInput{
		State:    pipeline.State{Snapshot: snap, Plan: p, AppliedPlan: p, PlanProblems: problems},
		Position: func(k source.Key) string { return fmt.Sprintf("/etc/edgeway/manifests/%s.yaml:1", k.Name) },
	}
}

func without(p *plan.Plan, name string) *plan.Plan {
	out := *p
	out.Services = slices.DeleteFunc(
		slices.Clone(p.Services),
		func(sp *plan.ServicePort) bool { return sp.Name.Name == name },
	)
	return &out
}

func quarantined(name string, previous bool) pipeline.QuarantinedVersion {
	return pipeline.QuarantinedVersion{
		Name:   plan.ServicePortName{Namespace: "shop", Name: name, Protocol: plan.TCP},
		Family: plan.IPv4, Err: "no such module", Previous: previous,
	}
}

func broken() ServiceInput {
	part := serviceWithEndpoints("external", "10.96.0.9", "10.1.0.9")
	part.Spec.ExternalIPs = addrs("10.96.0.1")
	invalid := serviceWithEndpoints("invalid", "10.96.0.10")
	invalid.Spec.Ports = nil
	invalid.Spec.Faults = []fault.Fault{source.FaultOf(invalid.Spec.Key(), "spec.ports", "it has no valid port")}
	slice := serviceWithEndpoints("slice", "10.96.0.11", "10.1.0.11")
	slice.Slices[0].Faults = []fault.Fault{
		source.FaultOf(slice.Slices[0].Key(), "endpoints[1]", "127.0.0.1 is a loopback address"),
	}
	sliced := serviceWithEndpoints("renamed", "10.96.0.12", "10.1.0.12")
	sliced.Slices[0].Ports[0].Name = "http"
	twin := serviceWithEndpoints("twin", "10.96.0.1", "10.1.0.1")
	twin.Spec.UID = "younger"
	in := planned(
		serviceWithEndpoints("web", "10.96.0.1", "10.1.0.1", "10.1.0.2"),
		serviceWithEndpoints("lost", "10.96.0.2"),
		serviceWithEndpoints("idle", "10.96.0.3", "-10.1.0.3", "-10.1.0.4"), sliced,
		twin, serviceWithEndpoints("six", "fd00::1"), part, invalid, slice,
		serviceWithEndpoints("dead", "10.96.0.4", "10.1.0.5", "10.1.0.6"),
		serviceWithEndpoints("new", "10.96.0.5", "10.1.0.15"),
		serviceWithEndpoints("gone", "10.96.0.6", "10.1.0.6"),
		serviceWithEndpoints("refused", "10.96.0.7", "10.1.0.7"),
		serviceWithEndpoints("previous", "10.96.0.8", "10.1.0.8"),
	)
	s := &in.State
	s.AppliedPlan = without(without(s.Plan, "new"), "refused")
	s.Snapshot.Services = slices.DeleteFunc(
		s.Snapshot.Services,
		func(svc *tracker.Service) bool { return svc.Spec.Name == "gone" },
	)
	s.Quarantined = []pipeline.QuarantinedVersion{quarantined("previous", true), quarantined("refused", false)}
	half := source.FaultOf(source.Key{Kind: source.KindDocument, Name: "/etc/edgeway/manifests/half.yaml:3"}, "",
		"cannot be parsed")
	half.Position, half.Fix = "/etc/edgeway/manifests/half.yaml:3", "edgeway config check"
	s.Snapshot.Problems = append(s.Snapshot.Problems, half)
	in.DeadEndpoints = &endpointcheck.DeadEndpoints{Faults: map[netip.AddrPort]fault.Fault{
		netip.MustParseAddrPort("10.1.0.5:8080"): {Since: time.Unix(0, 0), Message: "connection refused"},
	}}
	return in
}

func listed(t *testing.T, in ServiceInput) ServiceList {
	t.Helper()
	list, err := NewServiceList(in)
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestServiceStates(t *testing.T) {
	list := listed(t, broken())
	for name, want := range map[string]struct {
		state      ServiceState
		ready, all int
		reason     string
	}{
		"web":      {ServiceIsServed, 2, 2, ""},
		"lost":     {ServiceNoReadyEndpoint, 0, 0, "no EndpointSlice"},
		"idle":     {ServiceNoReadyEndpoint, 0, 2, "no endpoint is ready"},
		"renamed":  {ServiceNoReadyEndpoint, 0, 1, `"http"`},
		"twin":     {ServiceLeftOut, 0, 1, "10.96.0.1:80/TCP belongs to Service shop/web"},
		"invalid":  {ServiceLeftOut, 0, 0, "spec.ports: it has no valid port"},
		"six":      {ServiceLeftOut, 0, 0, "families"},
		"external": {ServiceIncomplete, 1, 1, "spec.externalIPs"},
		"slice":    {ServiceIncomplete, 1, 1, "EndpointSlice shop/slice-1: endpoints[1]"},
		"dead":     {ServiceDead, 1, 2, "10.1.0.5:8080 does not answer: connection refused"},
		"new":      {ServicePending, 0, 1, "waiting for a sync"},
		"gone":     {ServiceRemoved, 1, 1, "waiting for a sync"},
		"refused":  {ServiceRefused, 0, 1, "TCP over IPv4 is left out: no such module"},
		"previous": {ServiceRefused, 1, 1, "previous version"},
	} {
		one, err := list.Filter("shop/" + name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		item := one.Items[0]
		if item.State != want.state || item.ReadyEndpoints != want.ready || item.AllEndpoints != want.all {
			t.Errorf(
				"%s: state %q and %d/%d, want %q and %d/%d",
				name,
				item.State,
				item.ReadyEndpoints,
				item.AllEndpoints,
				want.state,
				want.ready,
				want.all,
			)
		}
		if reasons := fmt.Sprint(
			item.Faults,
		); want.reason == "" && item.Faults != nil ||
			!strings.Contains(reasons, want.reason) {
			t.Errorf("%s: reasons %s, want %q", name, reasons, want.reason)
		}
	}
	if len(list.Items) != 14 || len(list.Problems().Items) != 13 || len(list.Faults) != 1 {
		t.Errorf(
			"%d Services, %d problems, %d faults of manifests",
			len(list.Items),
			len(list.Problems().Items),
			len(list.Faults),
		)
	}
}

func TestServicesByName(t *testing.T) {
	state := planned(serviceWithEndpoints("web", "10.96.0.1"), serviceWithEndpoints("idle", "10.96.0.2")).State
	c, stop := start(t, &daemon{state: state})
	defer stop()
	for only, want := range map[string]string{
		"": "idle web", "shop": "idle web", "shop/web": "web", "none": "", "shop/wbe": "did you mean shop/web?",
		"shop/": "not of the form", "/web": "not of the form", "a/b/c": "not of the form",
	} {
		list, err := c.Services(t.Context(), only)
		var names []string
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		got := strings.Join(names, " ")
		if err != nil {
			got = err.Error()
		}
		if got != want && (err == nil || !strings.Contains(got, want)) {
			t.Errorf("%q: %s, want %s", only, got, want)
		}
	}
}

// Immediately after a reload, the sources have not listed any objects yet, and the previous plan is still in force.
func TestServicesAfterReload(t *testing.T) {
	if _, err := NewServiceList(ServiceInput{}); err == nil {
		t.Error("without a plan there is a list")
	}
	list := listed(t, ServiceInput{State: pipeline.State{AppliedPlan: testPlan()}})
	if len(list.Items) != 2 || list.Items[1].State != ServiceIsServed || list.Items[1].Endpoints != 2 ||
		list.Items[1].Type != "" {
		t.Errorf("%+v", list.Items)
	}
}

func healthy() ServiceInput {
	web := serviceWithEndpoints("web", "10.96.0.1", "10.1.0.1", "10.1.0.2", "10.1.0.3")
	web.Spec.Ports[0].NodePort = 30080
	web.Spec.LoadBalancerIPs = addrs("203.0.113.1", "203.0.113.2")
	dns := serviceWithEndpoints("kube-dns", "10.96.0.53", "10.1.0.53", "10.1.0.54")
	dns.Spec.Namespace, dns.Spec.Manifest, dns.Spec.Ports, dns.Slices[0].Ports = "kube-system", false, nil, nil
	for i, p := range []plan.Protocol{plan.UDP, plan.TCP, plan.TCP} {
		port, name := []uint16{53, 53, 9153}[i], []string{"dns", "dns-tcp", "metrics"}[i]
		dns.Spec.Ports = append(dns.Spec.Ports, source.ServicePort{Name: name, Protocol: p, Port: port})
		dns.Slices[0].Ports = append(dns.Slices[0].Ports, source.SlicePort{Name: name, Protocol: p, Port: port})
	}
	return planned(web, dns, serviceWithEndpoints("registry", "10.96.0.2", "10.1.0.1"))
}

func TestServicesText(t *testing.T) {
	counted := healthy()
	counted.Connections = map[proxiers.Frontends]uint64{
		{Name: plan.ServicePortName{Namespace: "shop", Name: "web", Protocol: plan.TCP}, Kind: plan.ClusterIP}: 1200,
		{Name: plan.ServicePortName{Namespace: "shop", Name: "web", Protocol: plan.TCP}, Kind: plan.NodePort}:  34,
	}
	good, bad := listed(t, healthy()), listed(t, broken())
	golden(t, "services_good.txt", formatText(ServiceTable{ServiceList: good}, columns, false))
	golden(t, "services_bad.txt", formatText(ServiceTable{ServiceList: bad}, columns, false))
	golden(t, "services_wide.txt", formatText(ServiceTable{ServiceList: listed(t, counted), Wide: true}, 0, false))
	one, err := bad.Filter("shop/renamed")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "services_one.txt", formatText(ServiceTable{ServiceList: one}, columns, false))
	// If the last column is too narrow, its text moves to separate lines.
	long := serviceWithEndpoints("a-service-whose-name-is-quite-long", "2001:db8:1234:5678:9abc:def0:1234:5678")
	other := serviceWithEndpoints("web", "fd00::1", "10.1.0.1")
	golden(t, "services_ipv6.txt",
		formatText(ServiceTable{ServiceList: listed(t, planned(long, other))}, columns, false))
	if got := formatText(ServiceTable{EmptyText: "no Service"}, columns, false); got != "no Service\n" {
		t.Errorf("an empty list is %q", got)
	}
	// Without a terminal, the output consists of the verdict, the header, a line for each Service, a line for the
	// document's fault, and a line for the fault's fix.
	if n := strings.Count(formatText(ServiceTable{ServiceList: bad}, 0, false), "\n"); n != len(bad.Items)+4 {
		t.Errorf("%d lines for %d Services", n, len(bad.Items))
	}
}
