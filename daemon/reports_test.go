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
)

// A problem of the plan that breaks connections is a condition, and not among the other problems.
func TestProblemsThatAreConditions(t *testing.T) {
	breaks := source.Problem{ID: planner.NodePortRangeID, Message: "22 is not served", Fix: "proxy.nodeport_range = \"22-32767\""}
	state := pipeline.State{PlanProblems: []source.Problem{breaks, {Message: "another"}}}
	want := []health.Condition{{Name: "nodeport-range", Level: health.Problem, Message: breaks.Message, Mend: breaks.Fix}}
	if got := planConditions(state); !slices.Equal(got, want) {
		t.Errorf("conditions %+v, want %+v", got, want)
	}
	if left := shown(state).PlanProblems; len(left) != 1 || left[0].Message != "another" || len(state.PlanProblems) != 2 {
		t.Errorf("problems beside the condition: %v of %v", left, state.PlanProblems)
	}
}

// A port that another program has is a condition: of a Service, a problem; of the daemon itself, a restriction.
func TestPortsThatAreNotServed(t *testing.T) {
	var own servers
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
