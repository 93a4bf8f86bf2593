package control

import (
	"context"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"edgeway/daemon/config"
	"edgeway/daemon/doctor"
	"edgeway/daemon/health"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/daemon/text"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

var update = flag.Bool("update", false, "write the golden files anew")

const columns = 80

type answer interface{ Print(*text.Screen) }

// formatText formats a response as text. If the width is 0, the Screen does not wrap lines.
func formatText(a answer, width int, verbose bool) string {
	var out strings.Builder
	s := text.NewScreen(&out, width, false)
	s.Verbose = verbose
	a.Print(s)
	return out.String()
}

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

// Every golden file except services_wide.txt fits on a terminal with 80 columns.
func TestGoldenFilesFitTerminal(t *testing.T) {
	names, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(names) < 8 {
		t.Fatalf("%d screens, %v", len(names), err)
	}
	for _, name := range names {
		screen, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(screen)) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > columns &&
				filepath.Base(name) != "services_wide.txt" {
				t.Errorf("%s has a line of %d columns: %s", name, n, line)
			}
		}
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

func (fixedSource) Run(context.Context, source.Sink) error { return nil }

func statusOf(state pipeline.State, sources ...source.Source) Status {
	s := NewStatus(state, health.New(fixedState{state}, sources...).Report())
	s.Version, s.Config, s.PID = "1.2.3", "/etc/edgeway/edgeway.toml", 4711
	s.Started = s.Time.Add(-50 * time.Hour)
	for _, src := range sources {
		s.Sources = append(s.Sources, StatusSource{Name: src.Name(), Status: src.Status()})
	}
	return s
}

func TestStatusText(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		ago := func(d time.Duration) time.Time { return now.Add(-d) }
		state := testState()
		state.Snapshot = &tracker.Snapshot{Node: &source.Node{Name: "edge", Zone: "south"}}
		state.Backend = pipeline.StageState{
			Name: "nftables", LastSync: ago(3 * time.Second), Duration: 6400 * time.Microsecond, Size: 2, FullSyncs: 1, PartialSyncs: 12,
		}
		state.Followers = []pipeline.StageState{{Name: "conntrack", LastSync: ago(3 * time.Second), FullSyncs: 1}}
		good := statusOf(state, fixedSource{"kube", source.Status{Synced: true, LastContact: ago(time.Second)}})
		good.LastKnown.SavedAt = ago(2 * time.Second)
		golden(t, "status_good.txt", formatText(good, columns, false))
		golden(t, "status_verbose.txt", formatText(good, columns, true))

		state = testState()
		state.OutOfSyncSince = ago(90 * time.Second)
		state.Backend = pipeline.StageState{
			Name: "nftables", LastSync: ago(5 * time.Hour), Duration: time.Second, Full: true, Size: 3, FullSyncs: 2,
			Err: "run nft: no such file", Since: ago(90 * time.Second), Attempts: 9, RunningSince: ago(time.Second),
			DriftRepairs: 2, LastDrift: ago(10 * time.Minute), DriftReason: "table deleted",
		}
		state.Done, state.Total = 1, 3
		state.Quarantined = []pipeline.QuarantinedVersion{{
			Name: plan.ServicePortName{Namespace: "a", Name: "b", Protocol: plan.SCTP}, Family: plan.IPv6, Since: ago(time.Hour), Err: "no such module",
		}}
		node := *state.Plan.Node
		for i := range 4 {
			node.NodePortAddrs = append(node.NodePortAddrs,
				netip.MustParseAddr(fmt.Sprintf("2001:db8:1234:5678:9abc:def0:1234:567%d", i)))
		}
		state.Plan.Node = &node
		bad := statusOf(state, fixedSource{
			"kube",
			source.Status{Fault: fault.Fault{Message: "dial tcp [2001:db8:1234:5678:9abc:def0:1234:5678]:6443: connect: connection refused"}},
		})
		bad.LastKnown = LastKnown{Serving: true, SavedAt: ago(100 * time.Minute)}
		bad.Ignored, bad.Checks = []string{"no-endpoint", "route-services"}, &StatusChecks{Endpoints: 70, Dead: 2}
		bad.FastPath = &StatusFastPath{Offloading: proxiers.Offloading{
			Devices: []string{"eth0", "veth1"},
			Services: []proxiers.OffloadedService{
				{Name: plan.ServicePortName{Namespace: "default", Name: "video", Protocol: plan.TCP}, Family: plan.IPv4, Flows: 3, Packets: 12345, Bytes: 1234567},
				{Name: plan.ServicePortName{Namespace: "default", Name: "voice", Protocol: plan.UDP}, Family: plan.IPv6},
			},
		}}
		golden(t, "status_bad.txt", formatText(bad, columns, false))
	})
}

func TestDetailsNeedVerbose(t *testing.T) {
	s := statusOf(testState())
	s.Shortcut = []string{"1 of 2 connections by socket"}
	s.FastPath = &StatusFastPath{Offloading: proxiers.Offloading{
		Devices:  []string{"veth1"},
		Services: make([]proxiers.OffloadedService, 1),
	}}
	for _, detail := range []string{"by socket", "veth1", "0 bytes", "0 full syncs"} {
		if strings.Contains(formatText(s, 0, false), detail) || !strings.Contains(formatText(s, 0, true), detail) {
			t.Errorf("%q is not a detail:\n%s", detail, formatText(s, 0, true))
		}
	}
}

func TestStatusOfPartiallyReadSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := formatText(statusOf(testState(),
			fixedSource{"file", source.Status{Fault: fault.Fault{Message: "/m: gone"}, Partial: true}},
			fixedSource{"kube", source.Status{Synced: true, LastContact: time.Now()}}), 0, false)
		for _, want := range []string{"healthy, but not ready\n", "source-file: ", ": /m: gone\n"} {
			if !strings.Contains(out, want) {
				t.Errorf("the text does not say %q:\n%s", want, out)
			}
		}
	})
}

func TestStatusOfSourceThatRefuses(t *testing.T) {
	out := formatText(statusOf(testState(),
		fixedSource{"kube", source.Status{
			Fault:   fault.Fault{Message: "forbidden (403)", Fix: "kubectl apply"},
			Refused: true,
		}}), 0, false)
	for _, want := range []string{
		"source-kube: ", ": forbidden (403)\n            fix: kubectl apply\n",
		"kube: rejecting requests; no contact yet",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("the text does not say %q:\n%s", want, out)
		}
	}
}

func TestStatusBoundsListedProblems(t *testing.T) {
	s := NewStatus(pipeline.State{Snapshot: &tracker.Snapshot{Problems: make([]fault.Fault, 60)}}, health.Report{})
	if s.Problems.Total != 60 || len(s.Problems.FirstFaults) != maxProblems {
		t.Errorf("%d problems, %d listed", s.Problems.Total, len(s.Problems.FirstFaults))
	}
	if out := formatText(s, 0, false); !strings.Contains(out, "and 10 more") {
		t.Errorf("the text does not say how many are not listed:\n%s", out)
	}
}

// Immediately after a reload, the new instance has neither objects nor a plan, so "edgeway status" takes the node's
// name and addresses from the plan in force.
func TestStatusNamesAfterReload(t *testing.T) {
	state := pipeline.State{AppliedPlan: testPlan(), Backend: pipeline.StageState{Name: "nftables"}}
	reading := fixedSource{"kube", source.Status{}}
	if out := formatText(statusOf(state, reading), 0, false); !strings.Contains(out,
		"node       edge; NodePorts at 192.0.2.7, 127.0.0.1\n") {
		t.Errorf("before the objects are listed:\n%s", out)
	}
	reading.status.Synced = true
	if out := formatText(statusOf(state, reading), 0, false); !strings.Contains(out, "no Node object") {
		t.Errorf("when they are listed:\n%s", out)
	}
}

func TestExplanationText(t *testing.T) {
	s := subjectOf(testPlan())
	s.FastPath = func(*plan.ServicePort, plan.Origin, []nodeinfo.NextHop) string {
		return "no: the Service has not opted in"
	}
	good, err := s.Explain("192.0.2.99", "10.96.0.1:80", "")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "explain_good.txt", formatText(good, columns, false))

	forward := fault.New("ip-forward", fault.Problem, "sysctl -w net.ipv4.ip_forward=1",
		"net.ipv4.ip_forward is 0: the kernel forwards no connection of pods or of other hosts to the endpoints")
	s.Faults = func() []fault.Fault { return []fault.Fault{forward} }
	s.DescribeDead = func(*plan.ServicePort) []string {
		return []string{"10.3.0.1:8080 does not answer since 2026-11-26T03:12:00Z: connection refused"}
	}
	s.Gaps = func(*plan.ServicePort) []proxiers.Gap {
		return []proxiers.Gap{{
			Feature: "session affinity",
			Reason:  "the kernel remembers the last 100 clients of each endpoint",
		}}
	}
	bad, err := s.Explain("192.0.2.99", "10.96.0.1:80", "")
	if err != nil {
		t.Fatal(err)
	}
	bad.Source, bad.NextHop = "2001:db8:1234:5678:9abc:def0:1234:5678",
		"via fe80::1234:5678:9abc:def0 on wlp0s20f3, from 2001:db8::1"
	golden(t, "explain_bad.txt", formatText(bad, columns, false))
}

func TestDoctorText(t *testing.T) {
	h := &doctor.Host{Config: config.Default()}
	ok := []fault.Fault{
		fault.New("daemon", fault.OK, "", "the daemon (process 4711) has programmed plan 7 in force"),
		fault.New("ip-forward", fault.OK, "", "the kernel forwards IPv4"),
		fault.New("firewall", fault.OK, "", "no rule of another program drops connections to Services, as far as nft and iptables list their rules"),
	}
	golden(t, "doctor_good.txt", formatText(doctor.NewReport(h, ok), columns, false))
	bad := append(ok[:1:1],
		fault.New("rp-filter", fault.Warning, "sysctl -w net.ipv4.conf.eth1.rp_filter=2",
			"eth1 drops packets whose sender it would not answer by the same way (net.ipv4.conf.eth1.rp_filter is 1)"),
		fault.New("ip-forward", fault.Problem, "sysctl -w net.ipv4.ip_forward=1",
			"net.ipv4.ip_forward is 0: the kernel forwards no connection"),
		fault.New("route-endpoints", fault.Problem, "ip route add 2001:db8:7::/64 via ADDRESS",
			"no route to [2001:db8:1234:5678:9abc:def0:1234:5678]:8080, [2001:db8:1234:5678:9abc:def0:1234:5679]:8080 and 3 more of default/web"))
	golden(t, "doctor_bad.txt", formatText(doctor.NewReport(h, bad), columns, false))
}
