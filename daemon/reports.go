package daemon

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/daemon/config"
	"edgeway/daemon/control"
	"edgeway/daemon/health"
	"edgeway/daemon/journal"
	"edgeway/daemon/metrics"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/sdunit"
	"edgeway/daemon/source"
	"edgeway/daemon/text"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func (i *instance) controlOptions() control.Options {
	return control.Options{
		Socket: i.cfg.Control.Socket,
		Logger: i.logger,
		Status: i.status,
		State:  func() pipeline.State { return filterState(i.pipeline.State(), i.cfg.Doctor.Ignore) },
		Facts:  i.facts,
		Lookups: control.Lookups{
			Gaps:         gapFunc(i.component, followers(i.cfg, i.component, i.opts.Shared)),
			NextHop:      nodeinfo.LookupRoute,
			DescribeDead: func(sp *plan.ServicePort) []string { return i.checks.describeDead(i.pipeline.State(), sp) },
			FastPath: func(sp *plan.ServicePort, origin plan.Origin, hops []nodeinfo.NextHop) string {
				return i.fastPath().explain(sp, origin, hops)
			},
			Path:   i.path,
			Faults: i.freshFaults,
		},
		Position:      i.sources.position,
		DeadEndpoints: i.checks.dead,
		Connections:   i.connections,
		Reload:        i.opts.Reload,
	}
}

// examineTimeout is the maximum time for examining the host before Edgeway explains a connection.
const examineTimeout = 5 * time.Second

// freshFaults examines the host and then returns the faults, because the previous examination may be a minute old.
func (i *instance) freshFaults() []fault.Fault {
	ctx, cancel := context.WithTimeout(context.Background(), examineTimeout)
	defer cancel()
	i.monitor.RunNow(ctx)
	return i.health.Faults()
}

// explainer returns the stage that implements proxiers.Explainer, or nil if no stage implements it.
func (i *instance) explainer() proxiers.Explainer {
	for _, s := range i.stages {
		if e, ok := s.Applier.(proxiers.Explainer); ok {
			return e
		}
	}
	return nil
}

// path returns the scheduler and the shortcut that the backend uses for a connection.
func (i *instance) path(d plan.Decision, bound bool) (proxiers.Path, error) {
	if e := i.explainer(); e != nil {
		return e.Explain(d, bound)
	}
	return proxiers.Path{}, nil
}

// shortcut returns a description of the backend's shortcut around the rules, or nil if there is none.
func (i *instance) shortcut() []string {
	if e := i.explainer(); e != nil {
		return e.Summary()
	}
	return nil
}

func (i *instance) status() control.Status {
	s := control.NewStatus(filterState(i.pipeline.State(), i.cfg.Doctor.Ignore), i.health.Report())
	s.Version, s.Revision, s.Started, s.Config = i.opts.Version, i.opts.Revision, i.opts.Started, i.opts.ConfigPath
	s.Zone, s.Ignored = cmp.Or(i.cfg.Node.Zone, s.Zone), i.cfg.Doctor.Ignore
	s.Sources, s.LastKnown, s.Checks = i.sources.status(), i.lastKnownState(), i.checks.status()
	s.FastPath, s.Shortcut = i.fastPath().status(), i.shortcut()
	return s
}

// lastKnownState describes the saved state. Edgeway serves the saved state if the API server has not responded since
// Edgeway started, or if some manifests are unreadable.
func (i *instance) lastKnownState() control.LastKnown {
	at, serving := i.sources.lastKnownState()
	return control.LastKnown{Serving: serving, SavedAt: at}
}

// planFaults returns the plan's faults that concern the host rather than an object.
func planFaults(s pipeline.State) (out []fault.Fault) {
	for _, f := range s.PlanProblems {
		if isOfHost(f) {
			out = append(out, f)
		}
	}
	return out
}

func isOfHost(f fault.Fault) bool { return f.ID != source.ObjectFaultID && f.Object.Kind == "" }

// filterState returns the pipeline's state without ignored notices and without the faults that planFaults returns.
func filterState(s pipeline.State, ignored []string) pipeline.State {
	hidden := func(f fault.Fault) bool { return isOfHost(f) || f.Ignored(ignored) }
	if slices.ContainsFunc(s.PlanProblems, hidden) {
		s.PlanProblems = slices.DeleteFunc(slices.Clone(s.PlanProblems), hidden)
	}
	return s
}

// connections implements control.Options.Connections and metrics.Options.Connections.
func (i *instance) connections() map[proxiers.Frontends]uint64 {
	p := i.pipeline.State().AppliedPlan
	if _, ok := i.stages[0].Applier.(proxiers.Counter); !ok || !i.cfg.Metrics.Services || p == nil {
		return nil
	}
	counts := map[proxiers.Frontends]uint64{}
	for _, s := range i.stages {
		if c, ok := s.Applier.(proxiers.Counter); ok {
			err := c.Connections(p, func(svc *plan.ServicePort, kind plan.FrontendKind, n uint64) {
				counts[proxiers.Frontends{Name: svc.Name, Kind: kind}] += n
			})
			if err != nil {
				i.logger.Debug("cannot read the connection counts", "stage", s.Name, "error", err)
				return nil
			}
		}
	}
	return counts
}

func (i *instance) metricsOptions() metrics.Options {
	o := metrics.Options{
		Version: i.opts.Version, Revision: i.opts.Revision,
		Backend: i.component.Name, Mode: proxyMode(i.component.Name), Families: i.families,
		State: i.pipeline.State, Tracker: i.sources.tracker.Stats, Sources: i.sources.list(),
		SavedAt:  func() time.Time { return i.lastKnownState().SavedAt },
		Expiries: i.sources.expiries, Faults: i.health.IDs,
		OnPanic: func(err error) { i.parts.Record("metrics", err) }, Connections: i.connections,
	}
	for _, s := range i.stages {
		if c, ok := s.Applier.(prometheus.Collector); ok {
			o.Proxiers = append(o.Proxiers, c)
		}
	}
	if i.checks.on() {
		o.Proxiers = append(o.Proxiers, i.checks.endpoints)
	}
	return o
}

// proxyMode returns kube-proxy's name for a backend. kube-proxy uses one name for all iptables implementations.
func proxyMode(backend string) string {
	mode, _, _ := strings.Cut(backend, "-")
	return mode
}

// faults returns the faults of the stages and of the daemon's own servers.
func (i *instance) faults() (out []fault.Fault) {
	for _, s := range i.stages {
		if r, ok := s.Applier.(proxiers.Reporter); ok {
			out = append(out, r.Faults()...)
		}
	}
	return append(out, i.servers.faults()...)
}

// shownFaults returns the faults for the health report, except fast-path faults, which fastPath reports.
func (i *instance) shownFaults() []fault.Fault {
	return slices.DeleteFunc(i.faults(), func(f fault.Fault) bool { return f.ID == proxiers.FastPathFault })
}

// NewFaultLog returns a FaultLog with its own Damper, so that changes to many Services cannot suppress log lines about
// faults.
func NewFaultLog(logger *slog.Logger) *health.FaultLog {
	return health.NewFaultLog(journal.NewDamper(logger), separatelyLoggedIDs()...)
}

// separatelyLoggedIDs returns the IDs of the faults that other components log with one line for each object, endpoint
// or port.
func separatelyLoggedIDs() []string {
	return []string{
		planner.NoEndpointID, proxiers.PortFault, proxiers.FastPathFault, "shortcut", "endpoint-checks", "panic",
		"removed-key", "fallback", "leftovers",
	}
}

// removedKeyFaults returns a warning for each file that sets removed configuration keys. The fix, "edgeway config
// check", names the replacement for each removed key.
func (c *Core) removedKeyFaults() (out []fault.Fault) {
	for _, r := range c.cfg.RemovedKeys {
		key := fmt.Sprintf("%s (line %d)", r.Key, r.Line)
		if last := len(out) - 1; last >= 0 && out[last].Object.Name == r.File {
			out[last].Message += ", " + key
			continue
		}
		out = append(out, fault.New("removed-key", fault.Warning, "edgeway config check",
			"removed keys are ignored: %s", key).WithName(r.File))
	}
	return out
}

func logRemovedKeys(logger *slog.Logger, keys []config.RemovedKey) {
	for _, r := range keys {
		logger.Warn("ignoring a removed configuration key", "file", r.File, "line", r.Line, "key", r.Key,
			"replacement", r.Replacement)
	}
}

// fastPath reports the state of the fast path, which bypasses the rules.
type fastPath struct {
	cfg     config.FastPath
	backend proxiers.Component
	// offloader is nil if no stage implements proxiers.Offloader.
	offloader proxiers.Offloader
}

func (i *instance) fastPath() *fastPath {
	f := &fastPath{cfg: i.cfg.FastPath, backend: i.component}
	for _, s := range i.stages {
		if o, ok := s.Applier.(proxiers.Offloader); ok {
			f.offloader = o
		}
	}
	return f
}

// failureReason returns the reason why an enabled fast path does not work, or "" if the fast path works or is disabled.
func (f *fastPath) failureReason() string {
	switch {
	case !f.cfg.Enabled:
		return ""
	case f.backend.Traits.NoFastPathReason != "":
		return f.backend.Name + " does not support the fast path: " + f.backend.Traits.NoFastPathReason
	case f.offloader == nil:
		return ""
	}
	if r, ok := f.offloader.(proxiers.Reporter); ok {
		for _, found := range r.Faults() {
			if found.ID == proxiers.FastPathFault {
				return found.Message
			}
		}
	}
	return ""
}

// faults returns a warning if the fast path is enabled but does not work.
func (f *fastPath) faults() []fault.Fault {
	why := f.failureReason()
	if why == "" {
		return nil
	}
	return []fault.Fault{{
		ID: proxiers.FastPathFault, Severity: fault.Warning,
		Message: "There is no fast path, so all connections use the rules: " + why,
		Fix:     "fastpath.enabled = false  # if this host needs no fast path",
	}}
}

// fastPathTime is the maximum time that "edgeway status" waits for the state of the fast path.
const fastPathTime = 5 * time.Second

// status returns the fast-path section of "edgeway status", or nil if the fast path is not in use.
func (f *fastPath) status() *control.StatusFastPath {
	if !f.cfg.Enabled || f.offloader == nil || f.failureReason() != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), fastPathTime)
	defer cancel()
	state, err := f.offloader.Offloading(ctx)
	if err != nil {
		return &control.StatusFastPath{Offloading: state, Err: err.Error()}
	}
	return &control.StatusFastPath{Offloading: state}
}

// explain returns the line of "edgeway explain" that reports whether connections to a ServicePort bypass the rules.
// hops holds the next hops to the client and to the endpoints.
func (f *fastPath) explain(svc *plan.ServicePort, origin plan.Origin, hops []nodeinfo.NextHop) string {
	missing := f.failureReason()
	switch {
	case !f.cfg.Enabled && !svc.LongLived:
		return ""
	case !f.cfg.Enabled:
		return "no: the Service has opted in, but fastpath.enabled is false"
	case missing != "":
		return "no: " + missing
	case svc.Name.Protocol == plan.SCTP:
		return "no: there is no fast path for SCTP"
	case !svc.LongLived:
		return "no: the Service has not opted in (with the annotation edgeway.io/traffic-hint: LongLived, or in " +
			"fastpath.services)"
	case origin == plan.FromHost:
		return "no: the fast path is for forwarded connections, not for this host's own connections"
	}
	for _, w := range hops {
		if w.Local {
			return "no: the client or the endpoint is on this host, and only forwarded connections use " +
				"the fast path"
		}
	}
	return "yes, after the endpoint's first reply"
}

// newView returns a function that computes the instance's View for systemd.
func (i *instance) newView() func() sdunit.View {
	var counted *plan.Plan
	var counts pipeline.Counts
	return func() sdunit.View {
		s := i.pipeline.State()
		if s.AppliedPlan != counted {
			counted, counts = s.AppliedPlan, pipeline.Count(s.AppliedPlan)
		}
		status := statusText(&s, counts, i.health.Report(), i.lastKnownState(), i.sources.list())
		return sdunit.View{
			Status: i.component.Name + ": " + status, Programmed: isServing(&s), ReloadDone: reloadDone(&s, i.leftovers.isSwitching()),
		}
	}
}

// isServing reports whether the backend has synced and no follower is waiting for its first sync. The followers matter,
// because they listen on loopback and serve health checks.
func isServing(s *pipeline.State) bool {
	waiting := func(f pipeline.StageState) bool { return f.LastSync.IsZero() && f.Err == "" }
	return s.Synced() && !slices.ContainsFunc(s.Followers, waiting)
}

func reloadDone(s *pipeline.State, switching bool) bool {
	return !s.Backend.LastSync.IsZero() && !switching || s.Backend.Err != ""
}

// statusText returns the text of STATUS= without the backend's name, such as "412 Services, 1,203 endpoints, synced 0 s
// ago; API server unreachable for 5 min".
func statusText(
	s *pipeline.State, counts pipeline.Counts, r health.Report, saved control.LastKnown, sources []source.Source,
) string {
	if !s.Synced() {
		return r.Summary()
	}
	parts := []string{text.Count(counts.Services, "Service") + ", " + text.Count(counts.Endpoints, "endpoint")}
	if at := s.Backend.LastSync; !at.IsZero() {
		parts[0] += ", synced " + age(at) + " ago"
	}
	if saved.Serving {
		parts = append(parts, "last-known state, saved "+age(saved.SavedAt)+" ago")
	}
	for _, src := range sources {
		if st := src.Status(); st.IsFaulty() {
			parts = append(parts, sourceText(src.Name(), st))
		}
	}
	if fault.WorstSeverity(r.Faults) > fault.Notice && !strings.HasPrefix(r.Faults[0].ID, "source-") {
		parts = append(parts, r.Summary())
	}
	return strings.Join(parts, "; ")
}

func sourceText(name string, st source.Status) string {
	name = "source " + name
	if name == "source "+kubeLayer {
		name = "API server"
	}
	if st.LastContact.IsZero() {
		return name + " " + st.State() + ", no contact yet"
	}
	return name + " " + st.State() + " for " + age(st.LastContact)
}

// age formats the time since t in a single unit. Below one minute, the result changes only every 10 s, because each new
// status line wakes systemd.
func age(t time.Time) string {
	d := max(0, time.Since(t))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds())/10*10)
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours())/24)
}
