package daemon

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/control"
	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

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
			s := pipeline.State{InForce: &plan.Plan{}, Backend: pipeline.StageState{LastSync: ago(13 * time.Second)}}
			report := health.Report{Healthy: true, Faults: c.faults}
			got := statusText(&s, pipeline.Counts{Services: 412, Endpoints: 1203}, report, c.saved, c.sources)
			if got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		}
		first := health.Report{Faults: []fault.Fault{fault.New("first-sync", fault.Unhealthy, "", "Nothing is programmed yet")}}
		got := statusText(&pipeline.State{}, pipeline.Counts{}, first, control.LastKnown{}, nil)
		if !strings.HasSuffix(got, ": Nothing is programmed yet") {
			t.Errorf("before the first sync: %q", got)
		}
	})
}

// READY=1 must wait for the followers. Otherwise, a NodePort on loopback would refuse clients immediately after the
// start.
func TestServedWaitsForFollowers(t *testing.T) {
	s := pipeline.State{InForce: &plan.Plan{}, Followers: []pipeline.StageState{
		{Name: "conntrack", LastSync: time.Now()}, {Name: "localnodeport"},
	}}
	if served(&s) {
		t.Error("ready before anybody listens on loopback")
	}
	s.Followers[1].Err = "no descriptors"
	if !served(&s) {
		t.Error("not ready, but a failed follower must not delay readiness")
	}
	if s.InForce = nil; served(&s) {
		t.Error("ready before the first sync")
	}
}

// A reload is done when the new configuration is in force and the rules of the previous backend are gone, or when the
// new configuration fails.
func TestSettled(t *testing.T) {
	s := pipeline.State{InForce: &plan.Plan{}} // of the previous configuration
	if settled(&s, false) {
		t.Error("done before the first sync")
	}
	s.Backend.LastSync = time.Now()
	if settled(&s, true) || !settled(&s, false) {
		t.Error("the switch of the backend makes no difference")
	}
	if s.Backend.Err = "x"; !settled(&s, true) {
		t.Error("a failure is not the end")
	}
}
