package daemon

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/journal"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/messageid"
	"edgeway/proxiers/plan"
)

func coreOptions(logger *slog.Logger) CoreOptions {
	lines, ready := journal.NewDamper(logger), make(chan struct{})
	close(ready)
	return CoreOptions{
		Logger: logger, Families: []plan.Family{plan.IPv4}, Host: quietHost{ready}, Checker: endpointcheck.New(lines),
		Parts: contain.New(logger), Damper: lines, FaultLog: NewFaultLog(logger),
		OnApplied: func(pipeline.ApplyResult) {},
		OnSynced:  func(*tracker.Snapshot, *plan.Plan, pipeline.SyncResult) {},
	}
}

// A fault ID that contains the name of a source or follower is not a constant, so a search for string constants does
// not find it.
func TestSourceAndFollowerFaultIDsAreKnown(t *testing.T) {
	ids := []string{"source-" + fileLayer, "source-" + kubeLayer}
	for _, f := range followers(config.Default(), proxiers.Component{}, sharedComponents{}) {
		ids = append(ids, "follower-"+f.Name)
	}
	for _, id := range ids {
		if !slices.Contains(fault.IDs(), id) {
			t.Errorf("fault.IDs lacks %s", id)
		}
	}
}

func TestIgnoredNoticesAreNotReported(t *testing.T) {
	cfg := config.Default()
	cfg.Source.File.Paths, cfg.Source.LastKnown.Directory = []string{t.TempDir()}, t.TempDir()
	cfg.Doctor.Ignore = []string{"no-endpoint"}
	logger := slog.New(slog.DiscardHandler)
	core, err := NewCore(cfg, coreOptions(logger))
	if err != nil {
		t.Fatal(err)
	}
	core.Health().Include(func() []fault.Fault {
		return []fault.Fault{{ID: "no-endpoint", Severity: fault.Notice}, {ID: "services", Severity: fault.Notice}}
	})
	var notices []string
	for _, f := range core.Health().Report().Faults {
		if f.Severity == fault.Notice {
			notices = append(notices, f.ID)
		}
	}
	if !slices.Equal(notices, []string{"services"}) {
		t.Errorf("the report has the notices %q", notices)
	}
}

// The daemon logs every fault, even while it omits other lines because too many Services change.
func TestFaultIsLoggedDuringManyServiceChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, nil))
		cfg := config.Default()
		cfg.Source.File.Paths, cfg.Source.LastKnown.Directory = []string{t.TempDir()}, t.TempDir()
		core, err := NewCore(cfg, coreOptions(logger))
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		go core.faultLog.Run(ctx, func() []fault.Fault {
			for i := range 30 {
				core.lines.Log(fmt.Sprint(time.Now(), i), slog.LevelInfo, messageid.ServiceAdded, "Service added")
			}
			return []fault.Fault{{ID: "firewall", Severity: fault.Problem}}
		})
		time.Sleep(time.Minute)
		stop()
		synctest.Wait()
		if !strings.Contains(out.String(), "level=ERROR msg=\"fault began\"") {
			t.Errorf("the fault has no line:\n%s", out.String())
		}
	})
}
