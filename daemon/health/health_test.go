package health

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

type fixedState struct{ s *pipeline.State }

func (f fixedState) State() pipeline.State { return *f.s }

type fixedSource struct {
	name   string
	status source.Status
}

func (f fixedSource) Name() string          { return f.name }
func (f fixedSource) Status() source.Status { return f.status }

func (fixedSource) Run(context.Context, source.Sink) error { return nil }

func synced() *pipeline.State {
	p := &plan.Plan{}
	return &pipeline.State{
		Snapshot: &tracker.Snapshot{}, Plan: p, AppliedPlan: p,
		Backend: pipeline.StageState{Name: "nftables", LastSync: time.Now()},
	}
}

func TestFaultConditionsAndStatusCodes(t *testing.T) {
	const gone = "netlink socket gone"
	tests := []struct {
		name             string
		tune             func(*pipeline.State)
		source           source.Status
		contact          time.Duration // contact is the time since the last contact, or 0 if there was no contact
		healthz, livez   int
		condition, names string // condition is the ID of the first fault, or ""; names is a text in the fault's message
	}{
		{name: "all well", healthz: 200, livez: 200},
		{
			name: "waiting for the API server at boot", healthz: 503, livez: 503,
			tune:      func(s *pipeline.State) { *s = pipeline.State{} },
			source:    source.Status{Fault: fault.Fault{Message: "connection refused"}},
			condition: "first-sync", names: "kube (connection refused)",
		},
		{
			name: "first sync running", healthz: 503, livez: 503,
			tune:      func(s *pipeline.State) { s.AppliedPlan, s.Done, s.Total = nil, 300, 1000 },
			condition: "first-sync", names: "300 of 1000",
		},
		{
			name: "first sync failing", healthz: 503, livez: 503,
			tune:      func(s *pipeline.State) { s.AppliedPlan, s.Backend.Err, s.Backend.Attempts = nil, gone, 3 },
			condition: "first-sync", names: "netlink socket gone",
		},
		{
			name: "a sync that just failed", healthz: 200, livez: 200,
			tune: func(s *pipeline.State) {
				s.Backend.Err, s.Backend.Attempts, s.OutOfSyncSince = gone, 1, time.Now().Add(-GracePeriod)
			},
			condition: "backend-sync", names: "netlink socket gone",
		},
		{
			name: "syncs that fail for longer than the grace time", healthz: 503, livez: 503,
			tune: func(s *pipeline.State) {
				s.Backend.Err, s.Backend.Attempts, s.OutOfSyncSince = gone, 9, time.Now().Add(-GracePeriod-1)
			},
			condition: "backend-sync", names: "netlink socket gone",
		},
		{
			name: "a sync that is stuck", healthz: 503, livez: 503,
			tune:      func(s *pipeline.State) { s.OutOfSyncSince = time.Now().Add(-2 * GracePeriod) },
			condition: "backend-sync", names: "",
		},
		{
			name: "a change that waits", healthz: 200, livez: 200,
			tune: func(s *pipeline.State) { s.OutOfSyncSince = time.Now().Add(-time.Second) },
		},
		{
			name: "only the API server is unreachable", healthz: 200, livez: 200,
			source:    source.Status{Synced: true, Fault: fault.Fault{Message: "connection refused"}},
			contact:   90 * time.Second,
			condition: "source-kube", names: "1m30s ago: connection refused",
		},
		{
			name: "the API server refuses", healthz: 200, livez: 200,
			source:    source.Status{Fault: fault.Fault{Message: "forbidden (403)"}, Refused: true},
			condition: "source-kube", names: "forbidden (403)",
		},
		{
			name: "the API server refuses since a while", healthz: 200, livez: 200,
			source:    source.Status{Synced: true, Fault: fault.Fault{Message: "forbidden (403)"}, Refused: true},
			contact:   90 * time.Second,
			condition: "source-kube", names: "1m30s ago: forbidden (403)",
		},
		{
			name: "the Node is missing", healthz: 200, livez: 200,
			tune: func(s *pipeline.State) { s.Snapshot.Node = nil },
		},
		{
			name: "the Node is leaving", healthz: 503, livez: 200,
			tune:      func(s *pipeline.State) { s.Snapshot.Node = &source.Node{Name: "edge", Leaving: true} },
			condition: "node-leaving", names: "edge",
		},
		{
			name: "a follower fails", healthz: 200, livez: 200,
			tune: func(s *pipeline.State) {
				s.Followers = []pipeline.StageState{{Name: "conntrack", Err: gone, Attempts: 1}}
			},
			condition: "follower-conntrack", names: "netlink socket gone",
		},
		{
			name: "two ServicePorts are refused", healthz: 200, livez: 200,
			tune: func(s *pipeline.State) {
				q := pipeline.QuarantinedVersion{Name: plan.ServicePortName{
					Namespace: "a", Name: "b",
					Protocol: plan.SCTP,
				}, Family: plan.IPv6, Err: "no such module"}
				s.Quarantined = []pipeline.QuarantinedVersion{q, q}
			},
			condition: "quarantine", names: "a/b/SCTP (IPv6)",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				state := synced()
				if tt.tune != nil {
					tt.tune(state)
				}
				if tt.source == (source.Status{}) {
					tt.source.Synced = true
				}
				if tt.contact != 0 {
					tt.source.LastContact = time.Now().Add(-tt.contact)
				}
				c := New(fixedState{state}, fixedSource{"kube", tt.source})
				for path, want := range map[string]int{
					"/healthz": tt.healthz, "/readyz": tt.healthz,
					"/livez": tt.livez,
				} {
					got := httptest.NewRecorder()
					c.Handler(HandlerOptions{OnAnswer: func(string, int) {}}).ServeHTTP(got,
						httptest.NewRequest(http.MethodGet, path, nil))
					if got.Code != want {
						t.Errorf("%s: %d, want %d: %s", path, got.Code, want, got.Body)
					}
				}
				r := c.Report()
				if tt.condition == "" {
					if len(r.Faults) != 0 {
						t.Errorf("conditions %+v, want none", r.Faults)
					}
					return
				}
				if len(r.Faults) == 0 || r.Faults[0].ID != tt.condition ||
					!strings.Contains(r.Faults[0].Message, tt.names) {
					t.Fatalf("conditions %+v, want first %s with %q", r.Faults, tt.condition, tt.names)
				}
				if !strings.Contains(r.Summary(), tt.names) {
					t.Errorf("summary %q lacks %q", r.Summary(), tt.names)
				}
			})
		})
	}
}

// A source that could read only some of its objects causes a warning. If the daemon has not read the source's paths
// since it started, /readyz fails, but /healthz succeeds.
func TestPartiallyReadSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // the message contains the time since the last contact
		for name, tt := range map[string]struct {
			status source.Status
			readyz int
			names  []string
		}{
			"since 5 minutes": {
				source.Status{
					Synced: true, Partial: true, Fault: fault.Fault{Message: "/m/a.yaml#1: no"},
					LastContact: time.Now().Add(-5 * time.Minute),
				},
				200,
				[]string{"5m0s", "/m/a.yaml#1: no"},
			},
			"since the start":    {source.Status{Synced: true, Partial: true, Fault: fault.Fault{Message: "/m/a.yaml#1: no"}}, 200, []string{"/m/a.yaml#1: no"}},
			"not even its paths": {source.Status{Partial: true, Fault: fault.Fault{Message: "/m: gone"}}, 503, []string{"/m: gone"}},
		} {
			c := New(fixedState{synced()}, fixedSource{"file", tt.status})
			for path, want := range map[string]int{"/healthz": 200, "/livez": 200, "/readyz": tt.readyz} {
				got := httptest.NewRecorder()
				c.Handler(HandlerOptions{OnAnswer: func(string, int) {}}).ServeHTTP(got,
					httptest.NewRequest(http.MethodGet, path, nil))
				if got.Code != want {
					t.Errorf("%s: %s: %d, want %d", name, path, got.Code, want)
				}
			}
			r := c.Report()
			if len(r.Faults) != 1 || r.Faults[0].ID != "source-file" || r.Faults[0].Severity != fault.Warning {
				t.Fatalf("%s: conditions %+v", name, r.Faults)
			}
			for _, want := range tt.names {
				if !strings.Contains(r.Faults[0].Message, want) {
					t.Errorf("%s: %q does not name %q", name, r.Faults[0].Message, want)
				}
			}
		}
	})
}

func TestBodyExtendsKubeProxyFields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := synced()
		time.Sleep(time.Hour)
		var answered []string
		h := New(fixedState{state}).Handler(HandlerOptions{
			Families: []plan.Family{plan.IPv4, plan.IPv6},
			OnAnswer: func(path string, _ int) { answered = append(answered, path) },
		})
		const families = `"status":{"IPv4":{"lastUpdated":"2000-01-01T00:00:00Z","healthy":true},"IPv6":{"lastUpdated":"2000-01-01T00:00:00Z","healthy":true}},"faults":[]}`
		for path, want := range map[string]string{
			"/healthz": `{"lastUpdated":"2000-01-01T01:00:00Z","currentTime":"2000-01-01T01:00:00Z","nodeEligible":true,"healthy":true,` + families,
			"/livez":   `{"lastUpdated":"2000-01-01T01:00:00Z","currentTime":"2000-01-01T01:00:00Z","healthy":true,` + families,
		} {
			got := httptest.NewRecorder()
			h.ServeHTTP(got, httptest.NewRequest(http.MethodGet, path, nil))
			if got.Body.String() != want {
				t.Errorf("%s:\n got %s\nwant %s", path, got.Body, want)
			}
			if got.Header().Get("Content-Type") != "application/json" ||
				got.Header().Get("X-Content-Type-Options") != "nosniff" {
				t.Errorf("%s: headers %v", path, got.Header())
			}
			if !json.Valid(got.Body.Bytes()) {
				t.Errorf("%s: no JSON", path)
			}
		}
		if len(answered) != 2 {
			t.Errorf("answers counted: %v", answered)
		}
	})
}

// The report lists host problems after the faults that make the daemon unhealthy and before all other faults. Host
// problems do not cause /healthz, /livez or /readyz to fail.
func TestProblemsDegradeState(t *testing.T) {
	state := synced()
	c := New(fixedState{state}, fixedSource{"kube", source.Status{Fault: fault.Fault{Message: "refused"}}})
	c.Include(func() []fault.Fault {
		return []fault.Fault{
			{ID: "leftovers", Severity: fault.Warning},
			{ID: "ip-forward", Severity: fault.Problem, Message: "it is 0", Fix: "sysctl"},
		}
	})
	r := c.Report()
	if r.State() != StateDegraded || !r.Healthy || r.Summary() != "degraded: it is 0" ||
		r.Faults[0].ID != "ip-forward" || len(r.Faults) != 3 {
		t.Errorf("state %s, summary %q, %+v", r.State(), r.Summary(), r)
	}
	for path, want := range map[string]int{"/healthz": 200, "/livez": 200, "/readyz?verbose": 200} {
		req := httptest.NewRequest(http.MethodGet, path, nil)
		req.RemoteAddr = "127.0.0.1:1"
		got := httptest.NewRecorder()
		c.Handler(HandlerOptions{OnAnswer: func(string, int) {}}).ServeHTTP(got, req)
		if got.Code != want || !strings.Contains(got.Body.String(),
			`{"id":"ip-forward","severity":"problem","message":"it is 0","fix":"sysctl"}`) {
			t.Errorf("%s: %d %s", path, got.Code, got.Body)
		}
	}
	names := c.IDs()
	for name, holds := range map[string]bool{
		"first-sync": false, "backend-sync": false, "conntrack": false,
		"ip-forward": true, "leftovers": true, "source-kube": true,
	} {
		if got, there := names[name]; !there || got != holds {
			t.Errorf("condition %s: %t, there %t; want %t", name, got, there, holds)
		}
	}
	state.OutOfSyncSince = time.Now().Add(-2 * GracePeriod)
	if r := c.Report(); r.State() != StateUnhealthy || r.Faults[0].Severity != fault.Unhealthy ||
		r.Faults[1].Severity != fault.Problem {
		t.Errorf("state %s, %+v", r.State(), r.Faults)
	}
	if r := New(fixedState{synced()}).Report(); r.State() != StateHealthy {
		t.Errorf("state %s without a condition", r.State())
	}
}
