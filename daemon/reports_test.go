package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/control"
	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// A planner problem that breaks connections counts as a host fault, so the status does not list the problem among the
// object problems.
func TestPlanProblemThatBreaksConnectionsIsFault(t *testing.T) {
	breaks := fault.Fault{
		ID: planner.NodePortRangeID, Severity: fault.Problem, Message: "22 is not served",
		Fix: "proxy.nodeport_range = \"22-32767\"",
	}
	ignored := fault.Fault{ID: source.ObjectFaultID, Severity: fault.Notice, Message: "a refused address"}
	state := pipeline.State{PlanProblems: []fault.Fault{
		breaks, ignored,
		{ID: source.ObjectFaultID, Severity: fault.Warning, Message: "another"},
	}}
	if got := planFaults(state); !slices.Equal(got, []fault.Fault{breaks}) {
		t.Errorf("faults %+v, want %+v", got, breaks)
	}
	if left := filterState(state, []string{"object"}).PlanProblems; len(left) != 1 || left[0].Message != "another" ||
		len(state.PlanProblems) != 3 {
		t.Errorf("problems beside the condition: %v of %v", left, state.PlanProblems)
	}
}

// When another program already uses a port, Edgeway reports a Problem if a Service needs the port, but only a Warning
// if the daemon itself needs it.
func TestPortInUseFaults(t *testing.T) {
	var own serverFaults
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
	port := proxiers.NewPortFault(fault.Problem, netip.MustParseAddrPort("127.0.0.1:30080"), "a/web/TCP", inUse)
	all := append(slices.Repeat([]fault.Fault{port}, 13), own.faults()...)
	got = fault.Truncate(all)
	if len(got) != 10+1 || got[0].Severity != fault.Problem ||
		got[0].String() != "a/web/TCP: Edgeway does not serve 127.0.0.1:30080: address already in use" ||
		!strings.HasSuffix(got[10-1].Message, "; and 3 more such faults") ||
		got[10].Severity != fault.Warning {
		t.Errorf("with those of Services: %+v", got)
	}
	got = fault.Truncate(all[:10])
	if len(got) != 10 || strings.Contains(got[10-1].Message, "more") {
		t.Errorf("no more than shown: %+v", got)
	}
}

// stage is a fake backend whose faults the test sets.
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

type fixedSource struct {
	name   string
	status source.Status
}

func (f fixedSource) Name() string          { return f.name }
func (f fixedSource) Status() source.Status { return f.status }

func (fixedSource) Run(context.Context, source.Sink) error { return nil }

func TestStatusText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(365 * 24 * time.Hour)
		ago := func(d time.Duration) time.Time { return time.Now().Add(-d) }
		away := source.Status{Fault: fault.Fault{Message: "connection refused"}}
		refused := source.Status{Synced: true, Refused: true, LastContact: ago(80 * time.Hour), Fault: away.Fault}
		partial := source.Status{Synced: true, Partial: true, LastContact: ago(5 * time.Minute), Fault: away.Fault}
		forward := fault.New("ip-forward", fault.Problem, "", "Packets are not forwarded")
		warning := fault.New("follower-conntrack", fault.Warning, "", "Stage conntrack failed once: x")
		lost := fault.New("source-kube", fault.Warning, "", "Source kube is unreachable")
		const inSync = "412 Services, 1,203 endpoints, synced 10 s ago"
		for want, c := range map[string]struct {
			saved   control.LastKnown
			sources []source.Source
			faults  []fault.Fault
		}{
			inSync: {sources: []source.Source{fixedSource{"kube", source.Status{Synced: true}}}},
			inSync + "; last-known state, saved 2 h ago; API server unreachable, no contact yet": {
				control.LastKnown{Serving: true, SavedAt: ago(2*time.Hour + time.Minute)},
				[]source.Source{fixedSource{"kube", away}},
				[]fault.Fault{lost},
			},
			inSync + "; source file partly unreadable for 5 min; API server rejecting requests for 3 days": {
				sources: []source.Source{fixedSource{"file", partial}, fixedSource{"kube", refused}},
			},
			inSync + "; degraded: Packets are not forwarded":          {faults: []fault.Fault{forward, lost}},
			inSync + "; serving, but: Stage conntrack failed once: x": {faults: []fault.Fault{warning}},
		} {
			s := pipeline.State{
				AppliedPlan: &plan.Plan{}, Backend: pipeline.StageState{LastSync: ago(13 * time.Second)},
			}
			report := health.Report{Healthy: true, Faults: c.faults}
			got := statusText(&s, pipeline.Counts{Services: 412, Endpoints: 1203}, report, c.saved, c.sources)
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		first := health.Report{Faults: []fault.Fault{fault.New("first-sync", fault.Unhealthy, "",
			"Nothing is programmed yet")}}
		got := statusText(&pipeline.State{}, pipeline.Counts{}, first, control.LastKnown{}, nil)
		if !strings.HasSuffix(got, ": Nothing is programmed yet") {
			t.Errorf("before the first sync: %q", got)
		}
	})
}

// READY=1 must wait for the followers. Otherwise, the kernel would refuse connections to NodePorts on loopback right
// after the start.
func TestServedWaitsForFollowers(t *testing.T) {
	s := pipeline.State{AppliedPlan: &plan.Plan{}, Followers: []pipeline.StageState{
		{Name: "conntrack", LastSync: time.Now()}, {Name: "localnodeport"},
	}}
	if isServing(&s) {
		t.Error("ready before anybody listens on loopback")
	}
	s.Followers[1].Err = "no descriptors"
	if !isServing(&s) {
		t.Error("not ready, but a failed follower must not delay readiness")
	}
	if s.AppliedPlan = nil; isServing(&s) {
		t.Error("ready before the first sync")
	}
}

// A reload is done when the new configuration is in force and the rules of the previous backend are gone, or when the
// new configuration fails.
func TestSettled(t *testing.T) {
	s := pipeline.State{AppliedPlan: &plan.Plan{}} // the plan of the previous configuration
	if reloadDone(&s, false) {
		t.Error("done before the first sync")
	}
	s.Backend.LastSync = time.Now()
	if reloadDone(&s, true) || !reloadDone(&s, false) {
		t.Error("the switch of the backend makes no difference")
	}
	if s.Backend.Err = "x"; !reloadDone(&s, true) {
		t.Error("a failure is not the end")
	}
}
