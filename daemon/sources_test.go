package daemon

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/source"
	"edgeway/daemon/source/lastknown"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// begin starts the sources as the daemon does. The sources run until the test calls stop.
func begin(t *testing.T, cfg *config.Config) (s *sources, stop func()) {
	t.Helper()
	s, err := newSources(cfg, slog.New(slog.DiscardHandler), Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	return s, feed(t, s)
}

func feed(t *testing.T, s *sources) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var parts sync.WaitGroup
	s.run(func(_ string, run func(context.Context) error) {
		parts.Go(func() {
			if err := run(ctx); err != nil {
				t.Error(err)
			}
		})
	})
	return func() {
		cancel()
		parts.Wait()
	}
}

func await(t *testing.T, changed <-chan struct{}) {
	t.Helper()
	select {
	case <-changed:
	case <-time.After(30 * time.Second):
		t.Fatal("nothing changes")
	}
}

// If an operator renamed a manifest directory while the daemon was stopped, the daemon serves the Services in the
// last-known state and reports a fault. Without a last-known state, the daemon serves no Services.
func TestUnreadableManifestsAtStart(t *testing.T) {
	dir := t.TempDir()
	manifests, state := filepath.Join(dir, "manifests"), filepath.Join(dir, "state")
	if err := errors.Join(os.Mkdir(manifests, 0o700),
		os.WriteFile(filepath.Join(manifests, "web.yaml"), []byte(manifest), 0o600)); err != nil {
		t.Fatal(err)
	}
	cfg := config.Default()
	cfg.Source.File.Paths, cfg.Source.LastKnown.Directory = []string{manifests}, state
	held := []source.Holding{{Protocol: plan.TCP, Port: 30080, Namespace: "default", Name: "web"}}
	s, stop := begin(t, cfg)
	await(t, s.tracker.Changed())
	s.commit(held)
	stop()
	if err := os.Rename(manifests, manifests+"-away"); err != nil {
		t.Fatal(err)
	}
	snap, before, files, err := recall(cfg) // the daemon also calls recall when it starts
	if err != nil {
		t.Fatal(err)
	}
	if len(snap.Services) != 1 || len(before) != 1 ||
		!strings.Contains(files.Fault.Message, manifests+": no such file or directory") {
		t.Errorf("without a daemon: Services %v, holdings %v, status %+v", snap.Services, before, files)
	}
	for range 2 { // the second iteration saves the loaded state again
		s, stop = begin(t, cfg)
		await(t, s.tracker.Changed())
		snap, ok := s.tracker.Snapshot()
		if !ok || len(snap.Services) != 1 || len(snap.Services[0].Slices) != 1 || !snap.Services[0].Slices[0].Manifest {
			t.Fatalf("the gate is open: %v; snapshot %+v", ok, snap)
		}
		if saved, serving := s.lastKnownState(); !serving || time.Since(saved) > time.Minute {
			t.Errorf("last-known state: serving %v, of %s", serving, saved)
		}
		if st := s.file.Status(); st.Synced ||
			!strings.Contains(st.Fault.Message, manifests+": no such file or directory") {
			t.Errorf("status %+v", st)
		}
		if !slices.Equal(s.savedOwners(), held) {
			t.Errorf("held %v", s.savedOwners())
		}
		s.commit(held)
		stop()
	}
	if err := os.RemoveAll(state); err != nil {
		t.Fatal(err)
	}
	s, stop = begin(t, cfg)
	defer stop()
	for deadline := time.Now().Add(30 * time.Second); s.file.Status().Fault.Message == "" &&
		time.Now().Before(deadline); {
		time.Sleep(10 * time.Millisecond)
	}
	if _, ok := s.tracker.Snapshot(); ok || s.file.Status().Fault.Message == "" {
		t.Errorf("without a last-known state: the gate is open: %v; status %+v", ok, s.file.Status())
	}
}

// Validating a configuration for a reload must not create files, or delete files that the running daemon is writing.
func TestValidationLeavesFilesUnchanged(t *testing.T) {
	dir := t.TempDir()
	kubeconfig, state := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "state")
	const text = "current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\n"
	if err := os.WriteFile(kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(state, 0o700); err != nil {
		t.Fatal(err)
	}
	writing := filepath.Join(state, ".lastknown.jsonl4711")
	if err := os.WriteFile(writing, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, folder := range []string{state, filepath.Join(dir, "new")} {
		cfg := config.Default()
		cfg.Source.Kube.Kubeconfig, cfg.Source.LastKnown.Directory = kubeconfig, folder
		if _, err := newSources(cfg, slog.New(slog.DiscardHandler), Overrides{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(writing); err != nil {
		t.Errorf("what another store is writing: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "new")); err == nil {
		t.Error("a folder was made")
	}
}

// After a restart, the kube source delays its lists until the host serves the last-known state, but for at most
// maxStateTime. With an empty state, and after a reload of the configuration, the source does not wait.
func TestListsWaitForLastKnownState(t *testing.T) {
	dir := t.TempDir()
	var objects []source.Object
	prepare := func() *sources {
		return &sources{
			firstCommit: make(chan struct{}),
			kubeStore: lastknown.New(dir, lastknown.Options{
				Cluster: func() lastknown.Cluster { return lastknown.Cluster{} },
				Changes: func() (uint64, bool) { return 1, true },
				Objects: func() []source.Object { return objects },
				Logger:  slog.New(slog.DiscardHandler),
			}),
		}
	}
	synctest.Test(t, func(t *testing.T) {
		waits := func(s *sources) time.Duration {
			start := time.Now()
			s.waitForState(t.Context())
			return time.Since(start)
		}
		first := prepare()
		if d := waits(first); d != maxStateTime {
			t.Errorf("while the state loads, the lists wait %s", d)
		}
		first.kubeStore.Load()
		if d := waits(first); d != 0 {
			t.Errorf("without a state, the lists wait %s", d)
		}
		first.commit(nil)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		first.kubeStore.Record(ctx)
		empty := prepare()
		empty.kubeStore.Load()
		if d := waits(empty); d != 0 {
			t.Errorf("with an empty state, the lists wait %s", d)
		}
		objects = []source.Object{&source.Service{
			Namespace: "default", Name: "web", Ports: []source.ServicePort{{Protocol: plan.TCP, Port: 80}},
		}}
		empty.commit([]source.Holding{{Protocol: plan.TCP, Port: 30080, Namespace: "default", Name: "web"}})
		empty.kubeStore.Record(ctx)

		second := prepare()
		second.kubeStore.Load()
		if d := waits(second); d != maxStateTime {
			t.Errorf("before the first sync, the lists wait %s", d)
		}
		time.AfterFunc(time.Second, func() { second.commit(nil) })
		if d := waits(second); d != time.Second {
			t.Errorf("until the first sync, the lists wait %s", d)
		}
		reload := prepare()
		reload.isReload = true
		if d := waits(reload); d != 0 {
			t.Errorf("after a reload, the lists wait %s", d)
		}
	})
}

func TestServiceInTwoSourcesIsFault(t *testing.T) {
	s := &sources{tracker: tracker.New(tracker.Layer{Name: fileLayer}, tracker.Layer{Name: kubeLayer})}
	web := testService("web", 1, "http")
	s.tracker.Sink(kubeLayer).Upsert(web)
	if faults := s.duplicateFaults(); len(faults) != 0 {
		t.Errorf("a Service in one source: %v", faults)
	}
	s.tracker.Sink(fileLayer).Upsert(web)
	faults := s.duplicateFaults()
	if len(faults) != 1 || faults[0].Severity != fault.Warning || !strings.Contains(faults[0].Message, "ns/web") {
		t.Errorf("a Service in two sources: %v", faults)
	}
}
