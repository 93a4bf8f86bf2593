package daemon

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
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
