package daemon

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// A host at which no NodePort can be reached says so first; one that lacks them in one family has it among the problems.
func TestNoNodePortIsACondition(t *testing.T) {
	problem := source.Problem{Object: source.Key{Kind: source.KindSetting, Name: planner.NodePortSetting}, Message: "no address; set node.addresses"}
	none := &plan.Plan{Node: &plan.Node{HostAddrs: []netip.Addr{
		netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("172.17.0.1"), netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("fd00::1"),
	}}}
	some := &plan.Plan{Node: &plan.Node{NodePortAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}}}
	for name, c := range map[string]struct {
		state pipeline.State
		want  string
	}{
		"nothing is planned":  {pipeline.State{PlanProblems: []source.Problem{problem}}, ""},
		"no NodePorts wanted": {pipeline.State{Plan: none}, ""},
		"in one family":       {pipeline.State{Plan: some, PlanProblems: []source.Problem{problem}}, ""},
		"in both":             {pipeline.State{Plan: none, PlanProblems: []source.Problem{{}, problem}}, "set node.addresses"},
	} {
		got := nodePortCondition(c.state)
		if (len(got) > 0) != (c.want != "") || len(got) > 0 && !strings.Contains(got[0].Message, c.want) {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
		if len(got) > 0 && got[0].Mend != `node.addresses = ["172.17.0.1", "fd00::1"]  # or 192.0.2.1` {
			t.Errorf("%s: the mend is %s", name, got[0].Mend)
		}
		if again := slices.Contains(shown(c.state).PlanProblems, problem); again != (len(c.state.PlanProblems) > 0 && c.want == "") {
			t.Errorf("%s: that it is among the problems is %t", name, again)
		}
	}
}

// A port that another program has is a condition: of a Service, a problem; of the daemon itself, a restriction.
func TestPortsThatAreNotServed(t *testing.T) {
	var own unserved
	inUse := fmt.Errorf("listen: %w", syscall.EADDRINUSE)
	own.note("metrics.address", "127.0.0.1:10249", inUse)
	own.note("health.address", ":10256", inUse)
	got := portConditions(nil, own.waiting())
	if len(got) != 2 || got[0].Level != health.Warning || got[0].Message != "[::]:10256 of health.address is not served: address already in use" ||
		got[1].Message != "127.0.0.1:10249 of metrics.address is not served: address already in use" {
		t.Errorf("those of the daemon: %+v", got)
	}
	own.note("metrics.address", "127.0.0.1:10249", nil)
	services := slices.Repeat([]proxiers.Waiting{{Address: netip.MustParseAddrPort("127.0.0.1:30080"), Service: "a/web/TCP", Err: syscall.EADDRINUSE}}, 13)
	got = portConditions(services, own.waiting())
	if len(got) != maxPorts+1 || got[0].Level != health.Problem || got[0].Message != "127.0.0.1:30080 of a/web/TCP is not served: address already in use" ||
		!strings.HasSuffix(got[maxPorts-1].Message, "; and neither are 3 more") || got[maxPorts].Level != health.Warning {
		t.Errorf("with those of Services: %+v", got)
	}
	if got := portConditions(services[:maxPorts], nil); len(got) != maxPorts || strings.Contains(got[maxPorts-1].Message, "more") {
		t.Errorf("no more than shown: %+v", got)
	}
}
