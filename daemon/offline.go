package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/source/file"
	"edgeway/daemon/source/lastknown"
	"edgeway/daemon/tracker"
)

// What the doctor looks at while no daemon runs.

// recalled is what is known without the API server.
type recalled struct {
	tracker  *tracker.Tracker
	snapshot *tracker.Snapshot
	saved    lastknown.Saved
	files    source.Status // of the manifests
}

// foresee gives what a daemon that starts now, without its API server, would plan: from the last-known state, the
// manifests and this host. It changes nothing, makes no connection, and needs no kubeconfig, which may be a credential
// that is there only while the service runs.
func foresee(ctx context.Context, cfg *config.Config) (m recalled, state pipeline.State, err error) {
	if m, err = recall(ctx, cfg); err != nil {
		return m, state, err
	}
	host, err := nodeinfo.Read(hostOptions(cfg))
	if err != nil {
		return m, state, err
	}
	held := func() []source.Holding { return m.saved.Held }
	state.Snapshot = m.snapshot
	state.Plan, state.PlanProblems = planner.New(plannerOptions(cfg, families(cfg), held)).Plan(m.snapshot, host, nil)
	return m, state, nil
}

// recall reads the last-known state and the manifests, once.
func recall(ctx context.Context, cfg *config.Config) (m recalled, err error) {
	var layers []tracker.Layer
	if len(cfg.Source.File.Paths) > 0 {
		layers = append(layers, tracker.Layer{Name: fileLayer})
	}
	kept := cfg.Source.Kube.Kubeconfig != ""
	if kept {
		layers = append(layers, tracker.Layer{Name: kubeLayer},
			tracker.Layer{Name: lastKnownLayer, FallbackFor: kubeLayer})
	}
	all := tracker.New(layers...)
	if kept {
		m.saved, err = lastknown.Peek(cfg.Source.LastKnown.Directory, all.Sink(lastKnownLayer))
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: run the command as root", err)
		}
		if err != nil {
			return m, err
		}
	}
	if len(cfg.Source.File.Paths) > 0 {
		before, status, err := readFiles(ctx, cfg, all.Sink(fileLayer))
		if err != nil {
			return m, err
		}
		if m.saved.Held == nil { // as sources.held
			m.saved.Held = before.Held
		}
		m.files = status
	}
	var ok bool
	if m.snapshot, ok = all.Snapshot(); !ok {
		return m, errors.New("last-known state: it has no objects")
	}
	m.tracker = all
	return m, nil
}

// readFiles reads the manifests once. What cannot be read is as the last-known state has it, which before says of
// itself; the status says what that is.
func readFiles(ctx context.Context, cfg *config.Config,
	sink source.Sink,
) (before lastknown.Saved, status source.Status, err error) {
	o := file.Options{Paths: cfg.Source.File.Paths, NodeName: cfg.Node.Name, Logger: slog.New(slog.DiscardHandler)}
	var saved gathered
	if before, err = lastknown.Peek(savedFilesDir(cfg), &saved); err == nil {
		o.Known = func() ([]source.Object, bool) { return saved, true }
	}
	files := file.New(o)
	defer meanwhile(ctx, func(ctx context.Context) error { return files.Run(ctx, sink) })()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		switch status = files.Status(); {
		case status.Synced:
			return before, status, nil
		case status.Err != "" && o.Known != nil:
			sink.Synced() // the source says it a moment later
			return before, status, nil
		case status.Err != "":
			return before, status, fmt.Errorf("source %s: %s", fileLayer, status.Err)
		}
		select {
		case <-ctx.Done():
			return before, status, fmt.Errorf("source %s: %w", fileLayer, context.Cause(ctx))
		case <-look.C:
		}
	}
}

// gathered is a sink that keeps what it is told.
type gathered []source.Object

func (g *gathered) Upsert(obj source.Object) { *g = append(*g, obj) }
func (*gathered) Delete(source.Key)          {}
func (*gathered) Synced()                    {}

// meanwhile runs a function until stop is called, which waits for its end.
func meanwhile(ctx context.Context, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = run(ctx) }) // it ends with the context, or what it gives does not come
	return func() {
		cancel()
		running.Wait()
	}
}
