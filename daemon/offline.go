package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"

	"golang.org/x/sync/errgroup"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/source/file"
	"edgeway/daemon/source/lastknown"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// predictPlan returns the plan that a daemon would compute if it started now and could not reach its API server. files
// is the status of the manifests. predictPlan reads the last-known state, the manifests and this host's network
// settings. predictPlan changes nothing and opens no connections. predictPlan does not need the kubeconfig, which may
// be a systemd credential that exists only while the service is running.
func predictPlan(cfg *config.Config) (state pipeline.State, files source.Status, err error) {
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
		var objects []source.Object
		objects, held, err = lastknown.Peek(cfg.Source.LastKnown.Directory)
		if errors.Is(err, fs.ErrPermission) {
			err = fmt.Errorf("%w: run the command as root", err)
		}
		if err != nil {
			return nil, nil, files, err
		}
		sink := all.Sink(lastKnownLayer)
		for _, obj := range objects {
			sink.Upsert(obj)
		}
		sink.Synced()
	}
	if manifests {
		var before []source.Holding
		if before, files, err = readFiles(cfg, all.Sink(fileLayer)); err != nil {
			return nil, nil, files, err
		}
		if held == nil { // sources.savedOwners uses the same fallback
			held = before
		}
	}
	snap, ok := all.Snapshot()
	if !ok {
		return nil, nil, files, errors.New("the last-known state contains no objects")
	}
	return snap, held, files, nil
}

// readFiles reads the manifests once, and uses their last-known state if they are unreadable. held lists the owners of
// ports that several Services request, as recorded in the last-known state.
func readFiles(cfg *config.Config, sink source.Sink) (held []source.Holding, status source.Status, err error) {
	o := file.Options{Paths: cfg.Source.File.Paths, NodeName: cfg.Node.Name, Logger: slog.New(slog.DiscardHandler)}
	if objects, before, err := lastknown.Peek(fileStoreDir(cfg)); err == nil {
		held, o.KnownObjects = before, func() ([]source.Object, bool) { return objects, true }
	}
	if status = file.Read(o, sink); !status.Synced && o.KnownObjects == nil {
		err = fmt.Errorf("source %s: %s", fileLayer, status.Fault.Message)
	}
	return held, status, err
}

// MakePlan reads the sources once. The results are the plan that Run would apply, and the problems with the objects.
// MakePlan changes nothing on the host. From the last-known state, MakePlan uses only the API server's addresses and
// the owners of ports that several Services request.
func MakePlan(ctx context.Context, cfg *config.Config, logger *slog.Logger) (*plan.Plan, []fault.Fault, error) {
	s, err := newSources(cfg, logger, Overrides{})
	if err != nil {
		return nil, nil, err
	}
	s.ignoreStores = true
	for _, store := range s.stores() {
		if err := store.Recall(); err != nil {
			logger.Warn("cannot read last-known state, plan may be inaccurate", "error", err)
		}
	}
	node := nodeinfo.New(logger, hostOptions(cfg))
	ctx, stop := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	defer func() {
		stop()
		_ = group.Wait() // errors during the stop do not affect the plan
	}()
	group.Go(func() error { return node.Run(ctx) })
	s.run(func(_ string, run func(context.Context) error) { group.Go(func() error { return run(ctx) }) })
	for _, ready := range []<-chan struct{}{node.Ready(), s.tracker.Changed()} {
		select {
		case <-ctx.Done():
			return nil, nil, errors.Join(fmt.Errorf("wait for the sources: %w", context.Cause(ctx)), s.faults())
		case <-ready:
		}
	}
	snap, ok := s.tracker.Snapshot()
	if !ok {
		return nil, nil, errors.New("the sources have not listed all objects")
	}
	p, problems := planner.New(plannerOptions(cfg, families(cfg), s.savedOwners)).Plan(snap, node.Host(), nil)
	return p, slices.Concat(s.unread(), snap.Problems, problems), nil
}

func (s *sources) unread() []fault.Fault {
	if s.file == nil || s.file.Status().Fault.Message == "" {
		return nil
	}
	return []fault.Fault{
		fault.New(source.ObjectFaultID, fault.Warning, "", "%s", s.file.Status().Fault.Message).
			WithName("source.file.paths"),
	}
}

func (s *sources) faults() error {
	var errs []error
	for _, src := range s.list() {
		if st := src.Status(); st.Fault.Message != "" {
			errs = append(errs, fmt.Errorf("source %s: %s", src.Name(), st.Fault.Message))
		}
	}
	return errors.Join(errs...)
}
