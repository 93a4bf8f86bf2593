package daemon

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/daemon/control"
	"edgeway/daemon/health"
	"edgeway/daemon/metrics"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/sdunit"
	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// What the instance reports about itself.

func (i *instance) controlOptions() control.Options {
	return control.Options{
		Socket: i.cfg.Control.Socket,
		Logger: i.logger,
		Status: i.status,
		State:  func() pipeline.State { return i.pipeline.State() },
		Out:    func(sp *plan.ServicePort) []string { return i.checks.out(i.pipeline.State(), sp) },
		Gaps:   gaps(i.component, followers(i.cfg, i.opts.Lasting)),
		Reload: i.opts.Reload,
	}
}

func (i *instance) status() control.Status {
	return control.NewStatus(control.StatusInput{
		Version: i.opts.Version, Revision: i.opts.Revision, ConfigPath: i.opts.ConfigPath, Started: i.opts.Started,
		Zone:  i.cfg.Node.Zone,
		State: i.pipeline.State(), Health: i.health.Report(), Sources: i.healthSources(),
		LastKnown: i.lastKnown(), Waiting: i.waiting(), Checks: i.checks.status(),
	})
}

// view is what the service manager is notified of.
func (i *instance) view() sdunit.View {
	v := sdunit.View{
		Backend: i.component.Name, State: i.pipeline.State(), Health: i.health.Report(), Sources: i.healthSources(),
		Switching: i.leftovers.switching(),
	}
	if saved := i.lastKnown(); saved.Serving {
		v.SavedAt = saved.SavedAt
	}
	return v
}

// lastKnown says whether the saved state is being served: the API server has not answered since the start.
func (i *instance) lastKnown() control.LastKnown {
	saved := i.sources.saved
	if saved == nil {
		return control.LastKnown{}
	}
	at, ok := saved.Age()
	serving := ok && saved.Status().Synced && !i.sources.kube.Status().Synced
	return control.LastKnown{Serving: serving, SavedAt: at}
}

// waiting are the ports that stages cannot listen on.
func (i *instance) waiting() []proxiers.Waiting {
	var out []proxiers.Waiting
	for _, s := range i.stages {
		if l, ok := s.Applier.(proxiers.Listener); ok {
			out = append(out, l.Waiting()...)
		}
	}
	return out
}

func (i *instance) healthSources() []health.Source {
	var out []health.Source
	for _, s := range i.sources.list() {
		out = append(out, s)
	}
	return out
}

func (i *instance) metricsOptions() metrics.Options {
	o := metrics.Options{
		Version: i.opts.Version, Revision: i.opts.Revision,
		Backend: i.component.Name, Mode: proxyMode(i.component.Name), Families: i.families,
		State: i.pipeline.State, Tracker: i.sources.tracker.Stats,
		SavedAt:  func() time.Time { return i.lastKnown().SavedAt },
		Expiries: i.sources.expiries,
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
