package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"golang.org/x/sync/errgroup"

	"edgeway/daemon/config"
	"edgeway/daemon/doctor/trace"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// MakePlan reads the sources once and returns the plan that Run would apply, with the problems of the objects. It
// changes nothing on the host. From the last-known state it takes only the addresses of the API server, and which of
// several Services owns an address.
func MakePlan(ctx context.Context, cfg *config.Config, logger *slog.Logger) (*plan.Plan, []fault.Fault, error) {
	s, err := newSources(cfg, logger, Outside{})
	if err != nil {
		return nil, nil, err
	}
	return s.plan(ctx, cfg, logger)
}

// plan is MakePlan for sources that have not run. They must not run again.
func (s *sources) plan(ctx context.Context, cfg *config.Config,
	logger *slog.Logger,
) (*plan.Plan, []fault.Fault, error) {
	s.aside = true
	for _, store := range s.stores() {
		if err := store.Recall(); err != nil {
			logger.Warn("last-known state not read: of several Services with one address, another one may have it than in a dry run", "error", err)
		}
	}
	node := nodeinfo.New(logger, hostOptions(cfg))
	ctx, stop := context.WithCancel(ctx)
	group, ctx := errgroup.WithContext(ctx)
	defer func() {
		stop()
		_ = group.Wait() // a failure while stopping does not affect the plan
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
	p, problems := planner.New(plannerOptions(cfg, families(cfg), s.held)).Plan(snap, node.Host(), nil)
	return p, slices.Concat(s.unread(), snap.Problems, problems), nil
}

// unread returns a problem if manifests could not be read.
func (s *sources) unread() []fault.Fault {
	if s.file == nil || s.file.Status().Err == "" {
		return nil
	}
	return []fault.Fault{
		fault.New(source.ObjectFault, fault.Warning, "", "%s", s.file.Status().Err).Of("source.file.paths"),
	}
}

// faults returns the errors of the sources.
func (s *sources) faults() error {
	var errs []error
	for _, src := range s.list() {
		if st := src.Status(); st.Err != "" {
			errs = append(errs, fmt.Errorf("source %s: %s", src.Name(), st.Err))
		}
	}
	return errors.Join(errs...)
}

// Probed is the result of the test whether one backend can run on this host.
type Probed struct {
	Backend string
	// Err is what is missing, or nil if the backend can run.
	Err error
	// Faults are about missing parts without which the backend can run, too.
	Faults []fault.Fault
}

// Probe tests the host for every backend, and changes nothing.
func Probe(ctx context.Context, cfg *config.Config) []Probed {
	var out []Probed
	for _, b := range Backends() {
		p := Probed{Backend: b.Name}
		var actual proxiers.Component
		if actual, p.Err = pick(ctx, Backends(), b.Name); p.Err == nil {
			p.Err = actual.Probe(ctx)
		}
		if p.Err == nil && actual.Faults != nil {
			p.Faults = actual.Faults(cfg.Settings(actual.Name), []plan.Family{plan.IPv4, plan.IPv6})
		}
		out = append(out, p)
	}
	return out
}

// Cleanup removes the rules of all backends and followers, whether they are configured or not.
func Cleanup(ctx context.Context, cfg *config.Config, logger *slog.Logger) error {
	var errs []error
	all := followers(cfg, proxiers.Component{}, shared{})
	for i := range all {
		all[i].on = false
	}
	for _, c := range unused(Backends(), "", all) {
		err := c.Cleanup(ctx, cleanupEnv(cfg, logger.With("component", c.Name)))
		if err != nil && !errors.Is(err, proxiers.ErrUnsupported) {
			errs = append(errs, fmt.Errorf("%s: %w", c.Name, err))
		}
	}
	if err := trace.Cleanup(ctx); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func cleanupEnv(cfg *config.Config, logger *slog.Logger) proxiers.Env {
	return proxiers.Env{
		Logger: logger, Families: kernelFamilies(), MasqueradeBit: cfg.Proxy.MasqueradeBit,
		Drift: func(string) {}, Wake: func() {}, Progress: func(int, int) {},
	}
}
