package daemon

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/control"
	"edgeway/daemon/doctor"
	"edgeway/daemon/doctor/firewall"
	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/planner"
	"edgeway/daemon/source/kube"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
)

// ExamineHost returns the Host that "edgeway doctor" inspects. The facts in the Host come from the running daemon or,
// if no daemon responds, from the configuration, the manifests, the API server and the last-known state. The returned
// faults describe the sources that ExamineHost could not read. ExamineHost changes nothing.
func ExamineHost(ctx context.Context, path string, logger *slog.Logger) (*doctor.Host, []fault.Fault) {
	var found []fault.Fault
	cfg, invalid := LoadConfig(path)
	if invalid != nil {
		found = append(found, loadFault(invalid))
		cfg = config.Default() // a daemon may still use a previous configuration
	}
	h := &doctor.Host{
		Config: cfg, System: doctor.Kernel{}, MaxLookups: maxDoctorLookups, Rules: firewall.New().Findings,
		Unprivileged: os.Geteuid() != 0,
	}
	h.Backend, h.BackendErr = resolveBackend(ctx, Backends(), cfg.Proxy.Backend)
	h.ActiveBackend, _, _ = findBackend(ctx, cfg)
	addContact(h, cfg, logger)
	asked, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	facts, err := control.NewClient(cfg.Control.Socket).Facts(asked)
	if h.Facts = facts; err == nil {
		return h, found
	}
	h.DaemonFault = queryFault(err, invalid)
	if invalid != nil {
		return h, found // without a configuration, there is no plan
	}
	if k := cfg.Source.Kube; k.Kubeconfig != "" {
		credentials, _ := kube.Warnings(k.Kubeconfig, k.AllowExecPlugins) // the check api-server reports the error
		found = append(found, credentials...)
	}
	if h.Facts, err = offlineFacts(ctx, cfg, logger); err != nil {
		f := fault.New("sources", fault.Problem, "edgeway config check", "cannot create the plan for the checks: %s",
			oneLine(err))
		if h.Unprivileged { // the cause may be a file that only root can read
			f.Severity, f.Fix = fault.Warning, doctor.RootFix
		}
		found = append(found, f)
	}
	return h, found
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// loadFault returns the fault for a configuration that is invalid or that this user cannot read.
func loadFault(err error) fault.Fault {
	if errors.Is(err, fs.ErrPermission) && os.Geteuid() != 0 {
		return fault.New("configuration", fault.Warning, doctor.RootFix, "the configuration is unreadable: %s",
			oneLine(err))
	}
	return fault.New("configuration", fault.Problem, "edgeway config check",
		"the configuration is invalid, and a daemon would not start with it: %s", oneLine(err))
}

// queryFault returns a fault if a daemon may be running but did not respond.
func queryFault(err, invalid error) (f fault.Fault) {
	switch silent := errors.Is(err, control.ErrNotRunning); {
	case silent && invalid != nil:
		return fault.New("daemon", fault.Warning, loadFault(invalid).Fix,
			"no daemon answers at the default socket, %s. The configuration, which may name another "+
				"socket, is unusable", config.DefaultSocket)
	case !silent && os.Geteuid() != 0:
		return fault.New("daemon", fault.Warning, doctor.RootFix, "cannot query the daemon: %v", err)
	case !silent:
		return fault.New("daemon", fault.Warning, "journalctl -u edgeway  # shows the daemon's log",
			"cannot query the daemon: %v", err)
	}
	return f
}

// answerTime is the time limit for the daemon's response. If the daemon does not respond within answerTime, ExamineHost
// returns a fault.
const answerTime = 15 * time.Second

// maxDoctorLookups is the maximum number of route lookups by "edgeway doctor". maxMonitorLookups is the maximum number
// of route lookups in one run of the daemon's Monitor. 64 lookups take less than 5 ms of CPU time, even with 10,000
// Services.
const (
	maxDoctorLookups  = 10_000
	maxMonitorLookups = 64
)

// addContact allows the checks to contact the API server if a kubeconfig is configured.
func addContact(h *doctor.Host, cfg *config.Config, logger *slog.Logger) {
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
}

// readingTime is the maximum time for reading all sources if there is no last-known state.
const readingTime = 10 * time.Second

// offlineFacts returns facts based on predictPlan's plan or, if predictPlan fails, on a plan that MakePlan computes
// from all sources.
func offlineFacts(ctx context.Context, cfg *config.Config, logger *slog.Logger) (doctor.Facts, error) {
	state, files, err := predictPlan(cfg)
	if err == nil {
		f := factsOf(&state)
		if found, faulty := health.SourceFault(fileLayer, files); faulty && len(cfg.Source.File.Paths) > 0 {
			f.Faults = append(f.Faults, found)
		}
		for _, svc := range state.Snapshot.Services {
			f.Faults = append(f.Faults, planner.UnservedPortFaults(svc, state.Plan)...)
		}
		return f, nil
	}
	if cfg.Source.Kube.Kubeconfig == "" {
		return doctor.Facts{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, readingTime)
	defer cancel()
	p, _, failed := MakePlan(ctx, cfg, logger)
	if failed != nil {
		return doctor.Facts{}, errors.Join(err, failed)
	}
	return doctor.Facts{Plan: p}, nil
}

func (i *instance) newMonitor() *doctor.Monitor {
	rules := firewall.New() // the Checker caches rules that have not changed
	return doctor.NewMonitor(doctor.MonitorOptions{
		NetworkChanged: i.node.NetworkChanged(),
		Host: func() *doctor.Host {
			state := i.pipeline.State()
			return &doctor.Host{
				Config: i.cfg, System: doctor.Kernel{}, Backend: i.component, MaxLookups: maxMonitorLookups,
				Rules: rules.Findings,
				Facts: factsOf(&state),
			}
		},
	})
}

func factsOf(state *pipeline.State) doctor.Facts {
	f := doctor.Facts{Plan: state.AppliedPlan, InForce: state.AppliedPlan != nil}
	if f.Plan == nil {
		f.Plan = state.Plan
	}
	f.NodeObject = state.Snapshot != nil && state.Snapshot.Node != nil
	return f
}

func (i *instance) facts() doctor.Facts {
	state := i.pipeline.State()
	f := factsOf(&state)
	f.PID, f.Faults = os.Getpid(), i.health.Report().Faults
	return f
}
