package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/files"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/proxiers"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
)

type quietHost struct{ ready chan struct{} }

func (h quietHost) Run(ctx context.Context) error { <-ctx.Done(); return nil }
func (h quietHost) Ready() <-chan struct{}        { return h.ready }
func (h quietHost) Changed() <-chan struct{}      { return nil }
func (h quietHost) Host() *nodeinfo.Host          { return &nodeinfo.Host{} }

// panickingBackend is a backend that panics if the plan contains the Service called name.
type panickingBackend struct {
	mu      sync.Mutex
	name    string
	applied []string
}

func (p *panickingBackend) Apply(_ context.Context, change proxiers.Change) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.applied = nil
	for _, svc := range change.Next.Services {
		if svc.Name.Name == p.name {
			panic("on purpose")
		}
		p.applied = append(p.applied, svc.Name.Name)
	}
	return nil
}

func (p *panickingBackend) serves() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.applied)
}

// runCore runs a Core until the backend serves the wanted Services, and then returns the plan's problems.
func runCore(t *testing.T, cfg *config.Config, outside Overrides, backend *panickingBackend,
	want ...string,
) (problems []fault.Fault) {
	t.Helper()
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	opts := coreOptions(logger)
	opts.Overrides = outside
	core, err := NewCore(cfg, opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- core.Run(ctx, pipeline.Stage{Name: "backend", Applier: backend}) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		state := core.Pipeline().State()
		problems = state.Problems()
		if slices.Equal(backend.serves(), want) && state.Synced() && state.OutOfSyncSince.IsZero() &&
			state.Backend.Err == "" {
			break
		}
		if time.Now().After(deadline) {
			t.Errorf("the backend serves %v, want %v; problems %v", backend.serves(), want, problems)
			break
		}
	}
	if faults := core.parts.Faults(); len(faults) != 0 {
		t.Errorf("parts are to blame: %+v", faults)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	return problems
}

// Edgeway omits an object that causes a panic during conversion, planning or rendering, and reports a problem that
// names the object. The daemon uses all other objects from manifests and, after a restart, from the last-known state.
func TestObjectThatPanicsIsRefused(t *testing.T) {
	panics := func(key source.Key) {
		if key.Kind == source.KindService && key.Name == "bad" {
			panic("on purpose")
		}
	}
	for _, place := range []string{"convert", "plan", "render"} {
		t.Run(place, func(t *testing.T) {
			dir := t.TempDir()
			manifests := filepath.Join(dir, "manifests")
			err := os.Mkdir(manifests, 0o700)
			for i, name := range []string{"bad", "good"} {
				text := fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {clusterIP: 10.96.0.%d, ports: [{port: 80}]}\n", name, 10+i)
				err = errors.Join(err, os.WriteFile(filepath.Join(manifests, name+".yaml"), []byte(text), 0o600))
			}
			if err != nil {
				t.Fatal(err)
			}
			cfg := config.Default()
			cfg.Node.Name = "edge"
			cfg.Source.File.Paths, cfg.Source.LastKnown.Directory = []string{manifests}, filepath.Join(dir, "state")
			outside, backend := Overrides{}, &panickingBackend{}
			switch place {
			case "convert":
				outside.Convert = panics
			case "plan":
				outside.Plan = panics
			case "render":
				backend.name = "bad"
			}
			named := func(problems []fault.Fault) {
				t.Helper()
				if !slices.ContainsFunc(problems, func(p fault.Fault) bool {
					return p.Object.Name == "bad" && strings.Contains(p.Message, "on purpose")
				}) {
					t.Errorf("the Service is not named: %v", problems)
				}
			}
			named(runCore(t, cfg, outside, backend, "good"))

			if problems := runCore(t, cfg, Overrides{}, &panickingBackend{}, "bad", "good"); len(problems) != 0 {
				t.Errorf("without the panic: %v", problems)
			}
			if err := os.Rename(manifests, manifests+"-away"); err != nil {
				t.Fatal(err)
			}
			named(runCore(t, cfg, outside, backend, "good"))
		})
	}
}

// The daemon restarts a source that panics, but a source's third panic within ten minutes terminates the daemon.
func TestThirdSourcePanicEndsDaemon(t *testing.T) {
	cfg := config.Default()
	cfg.Source.File.Paths, cfg.Source.LastKnown.Directory = []string{t.TempDir()}, t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		opts, starts := coreOptions(slog.New(slog.DiscardHandler)), 0
		opts.Overrides.NewWatcher = func() (*files.Watcher, error) {
			starts++
			panic("on purpose")
		}
		core, err := NewCore(cfg, opts)
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		err = core.Run(t.Context(), pipeline.Stage{Name: "backend", Applier: &panickingBackend{}})
		if !contain.IsPanic(err) || !strings.Contains(err.Error(), `"source file" panicked 3 times`) || starts != 3 ||
			time.Since(begin) != 2*contain.Pause {
			t.Errorf("%d starts within %s, the daemon ends with %v", starts, time.Since(begin), err)
		}
	})
}

// The daemon reports a panic in an HTTP handler and closes the connection. Panics in HTTP handlers never terminate the
// daemon, however often they occur.
func TestHandlerPanicKeepsDaemonRunning(t *testing.T) {
	core := &Core{parts: contain.New(slog.New(slog.DiscardHandler))}
	server := httptest.NewUnstartedServer(core.recordPanics("health server",
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("on purpose") })))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Start()
	defer server.Close()
	for range 5 {
		if resp, err := http.Get(server.URL); err == nil {
			resp.Body.Close()
			t.Fatalf("an answer: %s", resp.Status)
		}
	}
	select {
	case err := <-core.parts.Failed():
		t.Errorf("the daemon ends: %v", err)
	default:
	}
	if faults := core.parts.Faults(); len(faults) != 1 || faults[0].Object.Name != "health server" {
		t.Errorf("faults %+v", faults)
	}
}
