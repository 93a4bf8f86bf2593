package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"edgeway/daemon/config"
	"edgeway/daemon/control"
	"edgeway/daemon/doctor"
	"edgeway/daemon/doctor/finding"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/planner"
	"edgeway/daemon/source/kube"
	"edgeway/daemon/source/lastknown"
	"edgeway/proxiers"
)

// Examined makes the host ready that edgeway doctor looks at: with what the running daemon knows, or else with what
// the configuration, the manifests, the API server and the last-known state say. The findings are what was in the way. It
// changes nothing.
func Examined(ctx context.Context, path string, logger *slog.Logger) (*doctor.Host, []finding.Finding) {
	var found []finding.Finding
	cfg, err := LoadConfig(path)
	if err != nil {
		found = append(found, finding.Finding{
			Check: "configuration", Level: finding.Problem, Mend: "edgeway config check",
			Seen: "the configuration is invalid, and a daemon would not start with it: " + strings.ReplaceAll(err.Error(), "\n", "; "),
		})
		cfg = config.Default() // a daemon may run with a previous one
	}
	h := &doctor.Host{Config: cfg, System: doctor.Kernel{}, Lookups: examinedEndpoints}
	h.Backend, h.BackendErr = pick(ctx, Backends(), cfg.Proxy.Backend)
	addKube(h, cfg, logger)
	asked, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	h.Facts, err = control.NewClient(cfg.Control.Socket).Facts(asked)
	if err == nil {
		return h, found
	}
	if !errors.Is(err, control.ErrNotRunning) {
		found = append(found, finding.Finding{Check: "daemon", Level: finding.Warning, Seen: "the daemon cannot be asked: " + err.Error(), Mend: "sudo edgeway doctor"})
	}
	if h.Facts, err = offline(ctx, cfg, logger); err != nil {
		found = append(found, finding.Finding{
			Check: "sources", Level: finding.Problem, Mend: "edgeway config check",
			Seen: "there is no plan to look at: " + strings.ReplaceAll(err.Error(), "\n", "; "),
		})
	}
	return h, found
}

// answerTime is how long a daemon may take to answer. A stuck one is a finding.
const answerTime = 15 * time.Second

// examinedEndpoints is how many routes to endpoints edgeway doctor looks up at most, and the daemon itself.
const (
	examinedEndpoints = 10_000
	watchedEndpoints  = 256
)

// addKube has the host know its API server, if there is one.
func addKube(h *doctor.Host, cfg *config.Config, logger *slog.Logger) {
	k := cfg.Source.Kube
	if k.Kubeconfig == "" {
		return
	}
	h.Contact = func(ctx context.Context) (kube.Contact, error) {
		return kube.Try(ctx, kube.Options{
			Kubeconfig: k.Kubeconfig, AllowExecPlugins: k.AllowExecPlugins, Namespaces: k.Namespaces,
			UserAgent: "edgeway", Mark: proxiers.OwnMark(cfg.Proxy.MasqueradeBit), Logger: logger,
		})
	}
	h.Credentials = func() ([]string, error) { return kube.Warnings(k.Kubeconfig, k.AllowExecPlugins) }
	if cfg.Source.LastKnown.Enabled {
		h.Saved = func() (time.Time, error) {
			saved, err := lastknown.Peek(cfg.Source.LastKnown.Directory)
			return saved.At, err
		}
	}
}

// offlineWait is how long sources may take while no daemon runs. The last-known state then takes the API server's place.
const offlineWait = 5 * time.Second

// offline gives what the sources say now.
func offline(ctx context.Context, cfg *config.Config, logger *slog.Logger) (doctor.Facts, error) {
	s, err := newSources(cfg, logger)
	if err != nil {
		return doctor.Facts{}, err
	}
	s.standIn(cfg)
	node := nodeinfo.New(logger, foreignDevices()...)
	ctx, stop := context.WithTimeout(ctx, offlineWait)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return node.Run(ctx) })
	s.run(ctx, group.Go)
	s.await(ctx, node.Ready())
	facts := doctor.Facts{Sources: s.facts()}
	fault := s.faults()
	stop()
	if err := group.Wait(); err != nil { // what can never be read
		return facts, err
	}
	snap, ok := s.tracker.Snapshot()
	if !ok {
		return facts, errors.Join(errors.New("the sources have not been read whole"), fault)
	}
	facts.Services, facts.Orphans = snap.Services, s.orphans()
	facts.Plan, _ = planner.New(plannerOptions(cfg, families(cfg), s.held)).Plan(snap, withoutHealthChecks(node.Host(), snap), nil)
	return facts, nil
}

// standIn has the last-known state serve until the API server has answered, and writes nothing.
func (s *sources) standIn(cfg *config.Config) {
	if s.aside = true; s.saved == nil || s.saved.Recall() != nil {
		return // the check of the state tells why
	}
	saved, err := lastknown.Peek(cfg.Source.LastKnown.Directory)
	if err != nil || saved.Server != s.kube.APIServer() {
		return
	}
	sink := s.tracker.Sink(lastKnownLayer)
	for _, obj := range saved.Objects {
		sink.Upsert(obj)
	}
	sink.Synced()
}

// await returns when all sources have been read whole and the host's addresses are known, or ctx ends.
func (s *sources) await(ctx context.Context, host <-chan struct{}) {
	select {
	case <-ctx.Done():
		return
	case <-host:
	}
	for {
		done := true
		for _, src := range s.list() {
			done = done && src.Status().Synced
		}
		if done {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// facts gives the state of each source.
func (s *sources) facts() (out []doctor.Source) {
	for _, src := range s.list() {
		out = append(out, doctor.Source{Name: src.Name(), Status: src.Status()})
	}
	return out
}

// orphans names the EndpointSlices of manifests that no Service uses.
func (s *sources) orphans() (out []string) {
	for _, slice := range s.tracker.Orphans() {
		out = append(out, fmt.Sprintf("%s of Service %s", slice.Key(), slice.Service))
	}
	return out
}
