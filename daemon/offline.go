package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/source/file"
	"edgeway/daemon/source/lastknown"
	"edgeway/daemon/tracker"
)

// foresee returns what a daemon that starts now without its API server would plan, and the status of the manifests. It
// reads the last-known state, the manifests and this host. It changes nothing, makes no connection, and needs no
// kubeconfig, which may be a credential that is there only while the service runs.
func foresee(cfg *config.Config) (state pipeline.State, files source.Status, err error) {
	snap, held, files, err := recall(cfg)
	if err != nil {
		return state, files, err
	}
	host, err := nodeinfo.Read(hostOptions(cfg))
	if err != nil {
		return state, files, err
	}
	before := func() []source.Holding { return held }
	state.Snapshot = snap
	state.Plan, state.PlanProblems = planner.New(plannerOptions(cfg, families(cfg), before)).Plan(snap, host, nil)
	return state, files, nil
}

// recall reads the last-known state and the manifests, once.
func recall(cfg *config.Config) (snap *tracker.Snapshot, held []source.Holding, files source.Status, err error) {
	var layers []tracker.Layer
	manifests, kept := len(cfg.Source.File.Paths) > 0, cfg.Source.Kube.Kubeconfig != ""
	if manifests {
		layers = append(layers, tracker.Layer{Name: fileLayer})
	}
	if kept {
		layers = append(layers, tracker.Layer{Name: kubeLayer},
			tracker.Layer{Name: lastKnownLayer, FallbackFor: kubeLayer})
	}
	all := tracker.New(layers...)
	if kept {
		saved, err := lastknown.Peek(cfg.Source.LastKnown.Directory, all.Sink(lastKnownLayer))
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: run the command as root", err)
		}
		if err != nil {
			return nil, nil, files, err
		}
		held = saved.Held
	}
	if manifests {
		var before []source.Holding
		if before, files, err = readFiles(cfg, all.Sink(fileLayer)); err != nil {
			return nil, nil, files, err
		}
		if held == nil { // as sources.held
			held = before
		}
	}
	snap, ok := all.Snapshot()
	if !ok {
		return nil, nil, files, errors.New("last-known state: it has no objects")
	}
	return snap, held, files, nil
}

// readFiles reads the manifests once. It takes what it cannot read from the last-known state, whose holdings it returns.
func readFiles(cfg *config.Config, sink source.Sink) (held []source.Holding, status source.Status, err error) {
	o := file.Options{Paths: cfg.Source.File.Paths, NodeName: cfg.Node.Name, Logger: slog.New(slog.DiscardHandler)}
	var saved gathered
	if before, err := lastknown.Peek(savedFilesDir(cfg), &saved); err == nil {
		held, o.Known = before.Held, func() ([]source.Object, bool) { return saved, true }
	}
	if status = file.Read(o, sink); !status.Synced && o.Known == nil {
		err = fmt.Errorf("source %s: %s", fileLayer, status.Err)
	}
	return held, status, err
}

// gathered is a sink that keeps the objects.
type gathered []source.Object

func (g *gathered) Upsert(obj source.Object) { *g = append(*g, obj) }
func (*gathered) Delete(source.Key)          {}
func (*gathered) Synced()                    {}
