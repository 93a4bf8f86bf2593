package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// A plan problem that breaks connections is a fault of the host, and is not listed among the other problems.
func TestPlanProblemThatBreaksConnectionsIsFault(t *testing.T) {
	breaks := fault.Fault{ID: planner.NodePortRangeID, Severity: fault.Problem, Message: "22 is not served", Fix: "proxy.nodeport_range = \"22-32767\""}
	ignored := fault.Fault{ID: source.ObjectFault, Severity: fault.Notice, Message: "a refused address"}
	state := pipeline.State{PlanProblems: []fault.Fault{breaks, ignored, {ID: source.ObjectFault, Severity: fault.Warning, Message: "another"}}}
	if got := planFaults(state); !slices.Equal(got, []fault.Fault{breaks}) {
		t.Errorf("faults %+v, want %+v", got, breaks)
	}
	if left := shown(state, []string{"object"}).PlanProblems; len(left) != 1 || left[0].Message != "another" || len(state.PlanProblems) != 3 {
		t.Errorf("problems beside the condition: %v of %v", left, state.PlanProblems)
	}
}

// If another program uses a port, the fault is a problem for the port of a Service, but only a warning for a port of
// the daemon.
func TestPortInUseFaults(t *testing.T) {
	var own servers
	inUse := fmt.Errorf("listen: %w", syscall.EADDRINUSE)
	own.note("metrics.address", "127.0.0.1:10249", inUse)
	own.note("health.address", ":10256", inUse)
	got := own.faults()
	if len(got) != 2 || got[0].Severity != fault.Warning ||
		got[0].String() != "health.address: Edgeway does not serve [::]:10256: address already in use" ||
		got[1].String() != "metrics.address: Edgeway does not serve 127.0.0.1:10249: address already in use" {
		t.Errorf("those of the daemon: %+v", got)
	}
	own.note("metrics.address", "127.0.0.1:10249", nil)
	port := proxiers.Unserved(fault.Problem, netip.MustParseAddrPort("127.0.0.1:30080"), "a/web/TCP", inUse)
	all := append(slices.Repeat([]fault.Fault{port}, 13), own.faults()...)
	got = fault.Bounded(all)
	if len(got) != 10+1 || got[0].Severity != fault.Problem ||
		got[0].String() != "a/web/TCP: Edgeway does not serve 127.0.0.1:30080: address already in use" ||
		!strings.HasSuffix(got[10-1].Message, "; and 3 more such faults") ||
		got[10].Severity != fault.Warning {
		t.Errorf("with those of Services: %+v", got)
	}
	got = fault.Bounded(all[:10])
	if len(got) != 10 || strings.Contains(got[10-1].Message, "more") {
		t.Errorf("no more than shown: %+v", got)
	}
}

// stage is a backend whose faults and explanations the test sets.
type stage struct{ found []fault.Fault }

func (s stage) Apply(context.Context, proxiers.Change) error { return nil }
func (s stage) Faults() []fault.Fault                        { return s.found }
func (s stage) Summary() []string                            { return []string{"taken by all"} }

func (s stage) Explain(plan.Decision, bool) (proxiers.Path, error) {
	return proxiers.Path{Shortcut: "by socket"}, nil
}

func TestBackendFaultsAndExplanations(t *testing.T) {
	down := fault.Fault{ID: "shortcut", Severity: fault.Warning, Message: "detached", Fix: "attach"}
	backend := stage{[]fault.Fault{down, {ID: proxiers.FastPathFault}}}
	i := &instance{stages: []pipeline.Stage{{Name: "fake", Applier: backend}}}
	want := []fault.Fault{{ID: "shortcut", Severity: fault.Warning, Message: "detached", Fix: "attach"}}
	if got := i.shownFaults(); !slices.Equal(got, want) {
		t.Errorf("faults %+v, want %+v", got, want)
	}
	path, err := i.path(plan.Decision{}, false)
	if err != nil || path.Shortcut != "by socket" || !slices.Equal(i.shortcut(), []string{"taken by all"}) {
		t.Errorf("path %+v, error %v, lines %q", path, err, i.shortcut())
	}
	none := &instance{}
	if path, err := none.path(plan.Decision{}, false); err != nil || path.Shortcut != "" || none.shortcut() != nil {
		t.Error("a backend without a shortcut reports one")
	}
}
