package flowtable

import (
	"flag"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

var update = flag.Bool("update", false, "write the golden files")

var both = []plan.Family{plan.IPv4, plan.IPv6}

// longLivedPorts returns ServicePorts that have opted in to the fast path, including an SCTP port.
func longLivedPorts() (list []*plan.ServicePort) {
	list = plantest.SampleServices()
	sctp := plantest.Service("sctp", []plan.Frontend{plantest.ClusterIP("10.96.0.9", 36412)},
		plantest.Endpoint("10.244.1.9:36412"))
	sctp.Name.Protocol = plan.SCTP
	list = append(list, sctp)
	for _, svc := range list {
		svc.LongLived = true
		svc.Serving = svc.Pools[plan.ClusterPool]
	}
	return list
}

func TestWholeTable(t *testing.T) {
	c := contentsOf(plantest.Plan(plantest.Node(), longLivedPorts()...), both)
	plantest.CompareGolden(t, *update, "whole", tableCommands(c, []string{"cni0", "eth0"}))
}

// On a kernel without IPv6, the commands do not mention IPv6.
func TestOneFamily(t *testing.T) {
	c := contentsOf(plantest.Plan(plantest.Node(), longLivedPorts()...), both[:1])
	if text := tableCommands(c, nil); strings.Contains(text, "ip6") || strings.Contains(text, "::") ||
		!strings.Contains(text, "10.96.0.2") {
		t.Errorf("for IPv4 alone:\n%s", text)
	}
}

func TestNoTableWithoutServices(t *testing.T) {
	c := contentsOf(plantest.Plan(plantest.Node(), plantest.SampleServices()...), both)
	want := "add table inet kube-proxy-flowtable\ndelete table inet kube-proxy-flowtable\n"
	if got := tableCommands(c, []string{"eth0"}); got != want || !c.idle() {
		t.Errorf("got %q", got)
	}
}

// A command lists at most 255 devices, because Linux 6.1 rejects 256.
func TestManyDevices(t *testing.T) {
	var devices []string
	for i := range 600 {
		devices = append(devices, fmt.Sprintf("veth%d", i))
	}
	commands := strings.Split(strings.TrimSpace(flowtable(devices)), "\n")
	total := 0
	for _, c := range commands {
		n := strings.Count(c, "veth")
		total += n
		if n > 255 {
			t.Errorf("%d devices in one command", n)
		}
	}
	if len(commands) != 3 || total != 600 {
		t.Errorf("%d commands with %d devices", len(commands), total)
	}
}

func TestChanges(t *testing.T) {
	base := plantest.Plan(plantest.Node(), longLivedPorts()...)
	with := func(name string, spoil func(*plan.ServicePort)) *plan.Plan {
		list := longLivedPorts()
		i := slices.IndexFunc(list, func(s *plan.ServicePort) bool { return s.Name.Name == name })
		spoil(list[i])
		return plantest.Plan(base.Node, list...)
	}
	moved := *plantest.Node()
	moved.NodePortAddrs = []netip.Addr{plantest.Addr("192.0.2.9")}
	for _, c := range []struct {
		name                     string
		next                     *plan.Plan
		concerned, cuts, differs bool
	}{
		{"nothing", base, false, false, false},
		{"a Service that never opted in", plantest.Plan(base.Node, append(longLivedPorts(), plantest.Service("new", []plan.Frontend{plantest.ClusterIP("10.96.0.99", 80)}))...), false, false, false},
		{"an endpoint comes", with("web", func(s *plan.ServicePort) {
			s.Serving = append(slices.Clone(s.Serving), plantest.Endpoint("10.244.9.9:8080"))
		}), true, false, false},
		{"an endpoint goes", with("web", func(s *plan.ServicePort) { s.Serving = s.Serving[1:] }), true, true, false},
		{"opting out", with("web", func(s *plan.ServicePort) { s.LongLived = false }), true, true, true},
		{"gone", plantest.Plan(base.Node, longLivedPorts()[1:]...), true, true, true},
		{"a frontend comes", with("web", func(s *plan.ServicePort) { s.Frontends = append(s.Frontends, plantest.ClusterIP("10.96.0.77", 80)) }), true, false, true},
		{"a frontend goes", with("local", func(s *plan.ServicePort) { s.Frontends = s.Frontends[:1] }), true, true, true},
		{"a source range goes", with("local", func(s *plan.ServicePort) {
			s.Frontends[1].AllowFrom = []netip.Prefix{plantest.Prefix("198.51.100.0/25")}
		}), true, true, false},
		{"another policy", with("local", func(s *plan.ServicePort) { s.Frontends[1].Routes[plan.FromOutside].Verdict = plan.Drop }), true, true, false},
		{"SCTP changes", with("sctp", func(s *plan.ServicePort) { s.Serving = nil }), false, false, false},
		{"another NodePort address", plantest.Plan(&moved, longLivedPorts()...), true, false, true},
	} {
		change := proxiers.NewChange(base, c.next)
		differs := !reflect.DeepEqual(contentsOf(c.next, both), contentsOf(base, both))
		if affectsTable(change) != c.concerned || mayInvalidate(change) != c.cuts || differs != c.differs {
			t.Errorf("%s: concerned %v, cuts %v, differs %v",
				c.name, affectsTable(change), mayInvalidate(change), differs)
		}
	}
}
