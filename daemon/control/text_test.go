package control

import (
	"errors"
	"flag"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

var update = flag.Bool("update", false, "write the golden files anew")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s differs (go test -update writes it anew):\n%s", name, diff)
	}
}

type fixedState struct{ s pipeline.State }

func (f fixedState) State() pipeline.State { return f.s }

type fixedSource struct {
	name   string
	status source.Status
}

func (f fixedSource) Name() string          { return f.name }
func (f fixedSource) Status() source.Status { return f.status }

func TestPlanText(t *testing.T) {
	var text strings.Builder
	state := testState()
	view := NewPlan(testPlan(), state.Problems(), noGaps)
	view.InForce = true
	if err := view.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	golden(t, "plan.txt", text.String())
}

func statusText(t *testing.T, state pipeline.State, lastKnown LastKnown, sources ...health.Source) string {
	t.Helper()
	in := StatusInput{
		Version: "1.2.3", ConfigPath: "/etc/edgeway/edgeway.toml", Started: time.Now().Add(-50 * time.Hour), Zone: "north",
		State: state, Health: health.New(fixedState{state}, sources...).Report(), Sources: sources, LastKnown: lastKnown,
	}
	if lastKnown.Serving {
		in.NotListening = []string{"default/web/TCP: 127.0.0.1:30080 is not served: address already in use"}
		in.Ignored = []string{"no-endpoint", "route-services"}
		in.FastPath = &StatusFastPath{Devices: []string{"eth0", "veth1"}, Services: []StatusFastService{
			{Name: "default/video/TCP", Family: "IPv4", Connections: 3, Packets: 12345, Bytes: 1234567},
			{Name: "default/voice/UDP", Family: "IPv6"},
		}}
	}
	s := NewStatus(in)
	s.PID = 4711
	var text strings.Builder
	if err := s.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestStatusText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		ago := func(d time.Duration) time.Time { return now.Add(-d) }
		good := testState()
		good.Snapshot = &tracker.Snapshot{Node: &source.Node{Name: "edge", Zone: "south"}}
		good.Backend = pipeline.StageState{
			Name: "nftables", LastSync: ago(3 * time.Second), Duration: 6400 * time.Microsecond, Size: 2, FullSyncs: 1, PartialSyncs: 12,
		}
		good.Followers = []pipeline.StageState{{Name: "conntrack", LastSync: ago(3 * time.Second), FullSyncs: 1}}
		golden(t, "status_good.txt", statusText(t, good, LastKnown{SavedAt: ago(2 * time.Second)},
			fixedSource{"kube", source.Status{Synced: true, LastContact: ago(time.Second)}}))

		bad := testState()
		bad.OutOfSync = ago(90 * time.Second)
		bad.Backend = pipeline.StageState{
			Name: "nftables", LastSync: ago(5 * time.Hour), Duration: time.Second, Full: true, Size: 3, FullSyncs: 2,
			Err: errors.New("run nft: no such file"), Since: ago(90 * time.Second), Attempts: 9,
			Running: ago(time.Second),
		}
		bad.Done, bad.Total = 1, 3
		bad.Backend.Drift, bad.Backend.LastDrift, bad.Backend.DriftReason = 2, ago(10*time.Minute), "table deleted"
		bad.Quarantined = []pipeline.Quarantined{{
			Name: plan.ServicePortName{Namespace: "a", Name: "b", Protocol: plan.SCTP}, Family: plan.IPv6, Since: ago(time.Hour), Err: "no such module",
		}}
		golden(t, "status_bad.txt", statusText(t, bad, LastKnown{Serving: true, SavedAt: ago(100 * time.Minute)},
			fixedSource{"kube", source.Status{Err: "connection refused"}}))
	})
}

func TestASourceThatWasNotReadWhole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		text := statusText(t, testState(), LastKnown{},
			fixedSource{"file", source.Status{Err: "/m: gone", Partial: true}},
			fixedSource{"kube", source.Status{Synced: true, LastContact: time.Now()}})
		for _, want := range []string{"healthy, but not ready\n", "source-file: ", ": /m: gone\n"} {
			if !strings.Contains(text, want) {
				t.Errorf("the text does not say %q:\n%s", want, text)
			}
		}
	})
}

// Who answers is not unreachable.
func TestASourceThatRefuses(t *testing.T) {
	text := statusText(t, testState(), LastKnown{}, fixedSource{"kube", source.Status{Err: "forbidden (403)", Refused: true, Fix: "kubectl apply"}})
	for _, want := range []string{"source-kube: ", ": forbidden (403)\n            fix: kubectl apply\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("the text does not say %q:\n%s", want, text)
		}
	}
}

func TestAllProblemsAreCountedAndSomeListed(t *testing.T) {
	var state pipeline.State
	state.Snapshot = &tracker.Snapshot{Problems: make([]fault.Fault, 60)}
	s := NewStatus(StatusInput{State: state})
	if s.Problems.Total != 60 || len(s.Problems.First) != maxProblems {
		t.Errorf("%d problems, %d listed", s.Problems.Total, len(s.Problems.First))
	}
	var text strings.Builder
	if err := s.WriteText(&text); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(text.String(), "and 10 more") {
		t.Errorf("the text does not say how many are not listed:\n%s", &text)
	}
}

// Right after a reload there are no objects and no plan of the new configuration yet: what is in force has the names.
func TestStatusHasTheNamesRightAfterAReload(t *testing.T) {
	state := pipeline.State{InForce: testPlan(), Backend: pipeline.StageState{Name: "nftables"}}
	reading := fixedSource{"kube", source.Status{}}
	text := statusText(t, state, LastKnown{}, reading)
	if !strings.Contains(text, "node       edge, zone north; NodePorts at 192.0.2.7, 127.0.0.1\n") {
		t.Errorf("before the objects are listed:\n%s", text)
	}
	reading.status.Synced = true
	if text = statusText(t, state, LastKnown{}, reading); !strings.Contains(text, "no Node object") {
		t.Errorf("when they are listed:\n%s", text)
	}
}
