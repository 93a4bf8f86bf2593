package sdunit

import (
	"strings"
	"testing"
	"time"

	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
)

func TestStatusIsSentOnMeaningfulChange(t *testing.T) {
	notified(t, "", func(t *testing.T, _ *Notifier, h *host, m *serviceManager) {
		h.set(synced(1))
		if texts := statuses(during(m, time.Hour)); len(texts) > 70 {
			t.Errorf("%d texts in an hour in which nothing happened", len(texts))
		}
		h.set(func(v *View) { v.Sources = []source.Source{away{since: time.Now().Add(-5 * time.Minute)}} })
		if texts := statuses(during(m, statusEvery+steady)); len(texts) != 1 || !strings.Contains(texts[0], "; API server ") {
			t.Errorf("texts when the API server became unreachable: %q", texts)
		}
		h.set(func(v *View) { v.Sources = []source.Source{away{time.Now().Add(-5 * time.Minute), true}} })
		if texts := statuses(during(m, statusEvery+steady)); len(texts) != 1 || !strings.Contains(texts[0], "; API server rejecting requests") {
			t.Errorf("texts when the API server began to refuse: %q", texts)
		}
		sent := 0
		for i := range 600 {
			h.set(synced(i % 20))
			sent += len(statuses(during(m, 100*time.Millisecond)))
		}
		if sent < 10 || sent > 13 {
			t.Errorf("%d texts in a minute of constant change", sent)
		}
	})
}

// unread is a source of manifests, some of which cannot be read.
type unread struct{ since time.Time }

func (unread) Name() string { return "file" }

func (u unread) Status() source.Status {
	return source.Status{Synced: true, LastContact: u.since, Fault: fault.Fault{Message: "no such file"}, Partial: true}
}

func TestStatusTexts(t *testing.T) {
	now := time.Now()
	ago := func(at time.Time) string { return age(now.Sub(at)) }
	base := View{Backend: "nftables"}
	synced(1)(&base)
	base.State.Backend.LastSync = now.Add(-3 * time.Second)
	for names, change := range map[string]func(*View){
		"nftables|412|1,203|3 s": func(*View) {},
		"nftables|412|1,203|3 s|; last-known state|2 h|; API server": func(v *View) {
			v.SavedAt, v.Sources = now.Add(-2*time.Hour-time.Minute), []source.Source{away{}}
		},
		"nftables|412|; source file": func(v *View) {
			v.Sources = []source.Source{unread{}}
		},
		"nftables|412|; source file|5 min": func(v *View) {
			v.Sources = []source.Source{unread{since: now.Add(-5 * time.Minute)}}
		},
		"nftables|412|; degraded: ip-forward, route-services|; API server": func(v *View) {
			v.Sources = []source.Source{away{}}
			for _, name := range []string{"ip-forward", "route-services", "route-services"} {
				v.Health.Faults = append(v.Health.Faults, fault.Fault{ID: name, Severity: fault.Problem})
			}
			v.Health.Faults = append(v.Health.Faults, fault.Fault{ID: "source-kube", Severity: fault.Warning})
		},
		"nftables|412|; sync|1 min": func(v *View) {
			v.State.OutOfSync, v.State.Backend.Err = now.Add(-time.Minute), "x\nREADY=1"
		},
		"nftables|412|; conntrack|3 days|; 2 ": func(v *View) {
			v.State.Followers = []pipeline.StageState{{Name: "conntrack", Err: "x", Since: now.Add(-80 * time.Hour)}}
			v.State.PlanProblems = make([]fault.Fault, 2)
		},
		`nftables|: x READY=1 \u001b[2J\u009b\x9b\u202e`: func(v *View) {
			v.State.InForce = nil
			v.Health.Faults = []fault.Fault{{Message: "the first sync failed: x\nREADY=1 \x1b[2J\u009b\x9b\u202e"}}
		},
	} {
		v := base
		change(&v)
		got := v.text(pipeline.Counts{Services: 412, Endpoints: 1203}, ago)
		rest := got
		for name := range strings.SplitSeq(names, "|") {
			_, after, found := strings.Cut(rest, name)
			if !found {
				t.Errorf("%q does not name %q in this order", got, names)
			}
			rest = after
		}
		if strings.Count(got, ";") != strings.Count(names, ";") {
			t.Errorf("%q has other parts than %q", got, names)
		}
	}
}
