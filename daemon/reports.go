package daemon

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/daemon/control"
	"edgeway/daemon/metrics"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/sdunit"
	"edgeway/daemon/source"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// What the instance reports about itself.

func (i *instance) controlOptions() control.Options {
	return control.Options{
		Socket: i.cfg.Control.Socket,
		Logger: i.logger,
		Status: i.status,
		State:  func() pipeline.State { return shown(i.state(), i.cfg.Doctor.Ignore) },
		Facts:  i.facts,
		Out:    func(sp *plan.ServicePort) []string { return i.checks.out(i.pipeline.State(), sp) },
		Gaps:   gaps(i.component, followers(i.cfg, i.component, i.opts.Shared)),
		Way:    nodeinfo.WayTo,
		FastPath: func(sp *plan.ServicePort, origin plan.Origin, ways []nodeinfo.Way) string {
			return i.fastPath().of(sp, origin, ways)
		},
		Path:   i.path,
		Faults: i.freshFaults,
		Place:  i.sources.place,
		Dead:   i.checks.dead,
		Reload: i.opts.Reload,
	}
}

// lookTime bounds the look at the host before an explanation.
const lookTime = 5 * time.Second

// freshFaults looks at the host first: the last look may be a minute old.
func (i *instance) freshFaults() []fault.Fault {
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	i.rounds.Now(ctx)
	return i.health.Faults()
}

// explainer returns the backend if it is one, and nil otherwise.
func (i *instance) explainer() proxiers.Explainer {
	for _, s := range i.stages {
		if e, ok := s.Applier.(proxiers.Explainer); ok {
			return e
		}
	}
	return nil
}

// path returns what the backend knows about the path of a connection.
func (i *instance) path(d plan.Decision, bound bool) (proxiers.Path, error) {
	if e := i.explainer(); e != nil {
		return e.Explain(d, bound)
	}
	return proxiers.Path{}, nil
}

// shortcut returns lines about the backend's way past the rules, if it has one.
func (i *instance) shortcut() []string {
	if e := i.explainer(); e != nil {
		return e.Summary()
	}
	return nil
}

func (i *instance) status() control.Status {
	s := control.NewStatus(shown(i.state(), i.cfg.Doctor.Ignore), i.health.Report())
	s.Version, s.Revision, s.Started, s.Config = i.opts.Version, i.opts.Revision, i.opts.Started, i.opts.ConfigPath
	s.Zone, s.Ignored = cmp.Or(i.cfg.Node.Zone, s.Zone), i.cfg.Doctor.Ignore
	s.Sources, s.LastKnown, s.Checks = sourceStates(i.sources.list()), i.lastKnown(), i.checks.status()
	s.FastPath, s.Shortcut = i.fastPath().status(), i.shortcut()
	return s
}

// state is the pipeline's. Before its first sync, as right after a reload, it has the names of the stages already.
func (i *instance) state() pipeline.State {
	s := i.pipeline.State()
	if s.Backend.Name != "" || len(i.stages) == 0 {
		return s
	}
	s.Backend.Name = i.stages[0].Name
	for _, f := range i.stages[1:] {
		s.Followers = append(s.Followers, pipeline.StageState{Name: f.Name})
	}
	return s
}

// view is what the service manager is notified of.
func (i *instance) view() sdunit.View {
	v := sdunit.View{
		Backend: i.component.Name, State: shown(i.pipeline.State(), i.cfg.Doctor.Ignore), Health: i.health.Report(), Sources: healthSources(i.sources.list()),
		Switching: i.leftovers.switching(),
	}
	if saved := i.lastKnown(); saved.Serving {
		v.SavedAt = saved.SavedAt
	}
	return v
}

// lastKnown says whether saved state is being served: the API server has not answered since the start, or not all paths
// of manifests could be read.
func (i *instance) lastKnown() control.LastKnown {
	at, serving := i.sources.lastKnown()
	return control.LastKnown{Serving: serving, SavedAt: at}
}

// planFaults returns the faults of the plan that are about the host, not about an object.
func planFaults(s pipeline.State) (out []fault.Fault) {
	for _, f := range s.PlanProblems {
		if isOfHost(f) {
			out = append(out, f)
		}
	}
	return out
}

// isOfHost reports whether a fault of the plan is one of the host, which planFaults returns.
func isOfHost(f fault.Fault) bool { return f.ID != source.ObjectFault && f.Object.Kind == "" }

// shown returns the state without the faults that planFaults returns and without ignored notices.
func shown(s pipeline.State, ignored []string) pipeline.State {
	hidden := func(f fault.Fault) bool { return isOfHost(f) || f.Ignored(ignored) }
	if slices.ContainsFunc(s.PlanProblems, hidden) {
		s.PlanProblems = slices.DeleteFunc(slices.Clone(s.PlanProblems), hidden)
	}
	return s
}

func (i *instance) metricsOptions() metrics.Options {
	o := metrics.Options{
		Version: i.opts.Version, Revision: i.opts.Revision,
		Backend: i.component.Name, Mode: proxyMode(i.component.Name), Families: i.families,
		State: i.pipeline.State, Tracker: i.sources.tracker.Stats,
		SavedAt:  func() time.Time { return i.lastKnown().SavedAt },
		Expiries: i.sources.expiries, Faults: i.health.IDs,
		Panicked: func(err error) { i.parts.Record("metrics", err) },
	}
	for _, s := range i.stages {
		if c, ok := s.Applier.(prometheus.Collector); ok {
			o.Proxiers = append(o.Proxiers, c)
		}
	}
	if i.checks.on() {
		o.Proxiers = append(o.Proxiers, i.checks.endpoints)
	}
	for _, s := range i.sources.list() {
		o.Sources = append(o.Sources, s)
	}
	return o
}

// proxyMode is kube-proxy's name for a backend: it knows iptables in one implementation only.
func proxyMode(backend string) string {
	mode, _, _ := strings.Cut(backend, "-")
	return mode
}
