package daemon

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"

	"edgeway/daemon/config"
	"edgeway/daemon/sdunit"
	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

type idle struct{}

func (idle) Apply(context.Context, proxiers.Change) error { return nil }
func (idle) Close() error                                 { return nil }

// While the daemon creates the next instance, the running instance responds to health requests. No health request
// reaches an incomplete instance or an instance that fails to start.
func TestHealthComesFromRunningInstance(t *testing.T) {
	dir := t.TempDir()
	cfg := config.Default()
	cfg.Node.Name = "edge"
	cfg.Source.File.Paths = []string{dir}
	cfg.Control.Socket = filepath.Join(dir, "edgeway.sock")
	logger := slog.New(slog.DiscardHandler)
	parts := newShared(logger, nil)
	before := func() bool { return true }
	parts.healthFunc.Store(&before)
	gone := errors.New("socket gone")
	backend := proxiers.Component{Name: "new", New: func(context.Context, proxiers.Env) (proxiers.Proxier, error) {
		if parts.healthFunc.Load() != &before {
			t.Error("an instance without stages is asked for the health")
		}
		return nil, gone
	}}
	_, err := newInstance(t.Context(), settings{cfg, backend, nil}, instanceOptions{
		Logger: logger, Shared: parts, Notifier: sdunit.NewNotifier(sdunit.NewManager(logger), logger),
	})
	if !errors.Is(err, gone) || parts.healthFunc.Load() != &before {
		t.Errorf("error %v; the health is that of an instance that does not run", err)
	}
}

// newIdleInstance returns a stopped instance whose backend does nothing, and the backend's environment.
func newIdleInstance(t *testing.T, parts sharedComponents, before appliedPlan) (i *instance, env proxiers.Env) {
	t.Helper()
	dir := t.TempDir()
	cfg := config.Default()
	cfg.Node.Name = "edge"
	cfg.Source.File.Paths = []string{dir}
	cfg.Control.Socket = filepath.Join(dir, "edgeway.sock")
	logger := slog.New(slog.DiscardHandler)
	backend := proxiers.Component{Name: "new", New: func(_ context.Context, e proxiers.Env) (proxiers.Proxier, error) {
		env = e
		return idle{}, nil
	}}
	i, err := newInstance(t.Context(), settings{cfg, backend, nil}, instanceOptions{
		Logger: logger, AppliedPlan: before, Shared: parts,
		Notifier: sdunit.NewNotifier(sdunit.NewManager(logger), logger),
	})
	if err != nil {
		t.Fatal(err)
	}
	i.close()
	if err := i.control.Close(); err != nil {
		t.Fatal(err)
	}
	return i, env
}

// Until the new backend has synced, every reload must set Env.Takeover, because the old backend's rules are still in
// the kernel.
func TestTakeoverAfterSeveralReloads(t *testing.T) {
	parts := newShared(slog.New(slog.DiscardHandler), nil)
	before := appliedPlan{&plan.Plan{Node: &plan.Node{}}, "old"}
	var i *instance
	for reload := range 3 {
		var env proxiers.Env
		if i, env = newIdleInstance(t, parts, before); !env.Takeover {
			t.Errorf("reload %d: the old backend serves, and the new one does not take over", reload+1)
		}
		before = i.appliedPlan()
		if before.plan == nil || before.backend != "old" {
			t.Errorf("reload %d: in force is %+v", reload+1, before)
		}
	}
	i.backendSynced.Store(true)
	if before = i.appliedPlan(); before.backend != "new" {
		t.Errorf("after the new one has served: in force is that of %s", before.backend)
	}
	if _, env := newIdleInstance(t, parts, before); env.Takeover {
		t.Error("a backend takes over from itself")
	}
}

// A panic in a goroutine of a backend does not end the process. The daemon reports the panic and runs the goroutine
// again.
func TestBackendGoroutineRestartsAfterPanic(t *testing.T) {
	parts := newShared(slog.New(slog.DiscardHandler), nil)
	_, env := newIdleInstance(t, parts, appliedPlan{})
	synctest.Test(t, func(t *testing.T) {
		var group sync.WaitGroup
		runs := 0
		env.Contain.Go(&group, "work", func() {
			if runs++; runs == 1 {
				panic("on purpose")
			}
		})
		group.Wait()
		if faults := parts.parts.Faults(); runs != 2 || len(faults) != 1 || faults[0].Object.Name != "new work" {
			t.Errorf("%d runs, faults %+v", runs, faults)
		}
	})
}
