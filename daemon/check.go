package daemon

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"

	"edgeway/daemon/config"
	"edgeway/daemon/files"
	"edgeway/daemon/health/httpserve"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/source/file"
	"edgeway/daemon/source/kube"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
)

// ServiceUser is the user that edgeway.service runs as.
const ServiceUser = "edgeway"

// IsInstalled reports whether path is in /etc/edgeway, the directory from which edgeway.service reads its
// configuration. A configuration in another directory may be for another host.
func IsInstalled(path string) bool {
	path, err := filepath.Abs(path)
	return err == nil && filepath.Dir(path) == filepath.Dir(config.DefaultPath)
}

// CheckConfig returns the faults that Run would report, and a fault for each setting that Run would silently ignore.
// CheckConfig does not start the daemon, and returns an error only if the configuration files themselves are invalid.
func CheckConfig(ctx context.Context, path string) ([]fault.Fault, error) {
	cfg, err := LoadConfig(path)
	if err != nil {
		return nil, err
	}
	c := &configCheck{cfg: cfg, installed: IsInstalled(path)}
	if u, err := user.Current(); err == nil && c.installed {
		c.hasServiceRights = u.Username == ServiceUser
	}
	for _, name := range config.IgnoredFiles(path) {
		c.add(fault.New("drop-ins", fault.Warning, "rename the file",
			"%s: Edgeway does not read this file, because its name does not end with .toml", name))
	}
	for _, r := range cfg.RemovedKeys {
		c.add(fault.New("removed-key", fault.Problem, "delete the key from the configuration file", "%s", r))
	}
	c.checkBackendKeys()
	c.checkSandbox()
	c.checkKubeconfig()
	c.checkWebConfig()
	c.checkManifests()
	c.checkServiceCIDRs()
	c.checkBackend(ctx)
	return slices.DeleteFunc(c.found, func(f fault.Fault) bool { return f.Ignored(cfg.Doctor.Ignore) }), nil
}

type configCheck struct {
	cfg       *config.Config
	installed bool
	// hasServiceRights reports whether this process has the same permissions as edgeway.service.
	hasServiceRights bool
	found            []fault.Fault
}

func (c *configCheck) add(f fault.Fault) { c.found = append(c.found, f) }

// otherHostAdvice is the advice for a fault that is irrelevant if the configuration is for another host.
const otherHostAdvice = "ignore this warning if the configuration is for another host"

// checkServiceCIDRs compares proxy.service_cidrs with this host's networks and kernel routes.
func (c *configCheck) checkServiceCIDRs() {
	host, err := nodeinfo.Read(hostOptions(c.cfg))
	if err != nil {
		c.add(fault.New(planner.ServiceRangeNetworkID, fault.Warning, "run this command again",
			"cannot compare proxy.service_cidrs with this host's networks: %v", err))
		return
	}
	for _, f := range planner.ServiceCIDRFaults(c.cfg.Proxy.ServiceCIDRs, host) {
		if !c.installed && f.Severity > fault.Warning {
			f.Severity, f.Fix = fault.Warning, f.Fix+"  # "+otherHostAdvice
		}
		c.add(f)
	}
}

// checkBackend tests whether the backend can run on this kernel with the permissions of this process.
func (c *configCheck) checkBackend(ctx context.Context) {
	b, why, err := findBackend(ctx, c.cfg)
	f := fault.Fault{ID: "backend", Severity: fault.Problem}
	switch unsupported := errors.Is(err, proxiers.ErrUnsupported); {
	case why != nil && c.installed:
		f.Severity, f.Fix = fault.Warning, fallbackFix
		f.Message = fmt.Sprintf("%v; Edgeway uses the backend in proxy.fallback: %s", why, b.Name)
	case err == nil, !unsupported && !c.installed:
		return
	case !unsupported:
		f.Severity, f.Fix = fault.Warning, "run this command as root"
		f.Message = "cannot determine whether this host can run the backend: " + err.Error()
	case !c.installed:
		f.Severity, f.Message, f.Fix = fault.Warning, err.Error(), otherHostAdvice
	default:
		f.Message = err.Error()
	}
	c.add(f)
}

const kubeconfigID = "kubeconfig"

// checkBackendKeys reports keys that have no effect with the configured backend.
func (c *configCheck) checkBackendKeys() {
	backends := Backends()
	i := slices.IndexFunc(backends, func(b proxiers.Component) bool { return b.Name == c.cfg.Proxy.Backend })
	if c.cfg.Metrics.Services && i >= 0 && !backends[i].Traits.CountsConnections {
		c.add(fault.New("backend-key", fault.Notice, "metrics.services = false",
			"metrics.services has no effect with the backend %s", c.cfg.Proxy.Backend))
	}
	for _, own := range c.cfg.Sections {
		for _, s := range own.Settings {
			if own.Name != c.cfg.Proxy.Backend && own.Values[s.Name] != s.Default {
				c.add(fault.New("backend-key", fault.Notice, fmt.Sprintf("proxy.backend = %q", own.Name),
					"%s.%s has no effect with the backend %s", own.Name, s.Name, c.cfg.Proxy.Backend))
			}
		}
	}
}

// hiddenDirs lists the directories that systemd hides from edgeway.service or replaces with private directories.
var hiddenDirs = [...]struct{ folder, setting string }{
	{"/home", "ProtectHome=yes"},
	{"/root", "ProtectHome=yes"},
	{"/run/user", "ProtectHome=yes"},
	{"/tmp", "PrivateTmp=yes"},
	{"/var/tmp", "PrivateTmp=yes"},
	{"/boot", "InaccessiblePaths="},
}

// checkSandbox reports configured files that the sandbox of edgeway.service hides.
func (c *configCheck) checkSandbox() {
	if !c.hasServiceRights {
		return
	}
	paths := slices.Concat(c.cfg.Source.File.Paths, []string{c.cfg.Metrics.WebConfig})
	if k := c.cfg.Source.Kube; k.Kubeconfig != "" {
		paths = append(paths, kube.Files(k.Kubeconfig, k.AllowExecPlugins)...)
	}
	level := fault.Problem
	if own, _ := filepath.Glob("/etc/systemd/system/edgeway.service.d/*.conf"); len(own) > 0 {
		level = fault.Warning // a drop-in may give access to the file
	}
	for _, path := range paths {
		actual, err := filepath.EvalSymlinks(path)
		if err != nil {
			actual = path
		}
		for _, h := range hiddenDirs {
			if actual == h.folder || strings.HasPrefix(actual, h.folder+"/") {
				c.add(fault.New("sandbox", level, "move the file to "+filepath.Dir(config.DefaultPath),
					"%s: edgeway.service cannot see files below %s (%s)", path, h.folder, h.setting))
			}
		}
	}
}

// credentialsDir is the directory where systemd stores the credentials of running services.
const credentialsDir = "/run/credentials/"

func (c *configCheck) checkKubeconfig() {
	k := c.cfg.Source.Kube
	if k.Kubeconfig == "" {
		return
	}
	_, err := newSources(c.cfg, slog.New(slog.DiscardHandler), Overrides{}) // Run calls newSources, too
	var found []fault.Fault
	if err == nil {
		found, err = kube.Warnings(k.Kubeconfig, k.AllowExecPlugins)
	}
	if err == nil {
		c.found = append(c.found, found...)
		return
	}
	failed, _ := errors.AsType[*fs.PathError](err)
	switch {
	case failed != nil && strings.HasPrefix(failed.Path, credentialsDir) && errors.Is(err, fs.ErrNotExist):
		c.add(fault.New(kubeconfigID, fault.Warning,
			"ignore this warning: the file exists only while edgeway.service is running",
			"cannot validate the kubeconfig: %v", err))
	case errors.Is(err, fs.ErrPermission) && !c.hasServiceRights && os.Geteuid() != 0:
		c.add(fault.New(kubeconfigID, fault.Warning, "run this command as root",
			"cannot validate the kubeconfig: %v", err))
	default:
		c.add(fault.New(kubeconfigID, fault.Problem, kube.Advice(err), "%v", err))
	}
}

func (c *configCheck) checkWebConfig() {
	path := c.cfg.Metrics.WebConfig
	err := httpserve.ValidateWebConfig(path)
	if err == nil {
		return
	}
	fix := "use only the keys that Prometheus exporters support: tls_server_config, http_server_config, " +
		"rate_limit, and basic_auth_users with password hashes from htpasswd -B"
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		fix = files.Advice(failed.Path, failed.Err)
	}
	c.add(fault.New("web-config", fault.Problem, fix, "%v", webConfigError(path, err)))
}

// checkManifests validates the manifests and the plan that results from them. The plan assumes a host without
// addresses, so that no fault depends on the host that runs the command.
func (c *configCheck) checkManifests() {
	if len(c.cfg.Source.File.Paths) == 0 {
		return
	}
	m := file.Check(file.Options{
		Paths: c.cfg.Source.File.Paths, NodeName: c.cfg.Node.Name, Logger: slog.New(slog.DiscardHandler),
	})
	c.addProblems(fault.Warning, m.EmptyDirs)
	for _, kind := range m.IgnoredKinds {
		if strings.HasPrefix(kind, "networking.k8s.io/") { // kind is, for example, "networking.k8s.io/v1 Ingress"
			c.add(fault.New(file.ManifestsID, fault.Notice, "", "Edgeway does not use objects of kind %s", kind))
		}
	}
	problems, unserved := planObjects(c.cfg, m.Objects)
	if c.cfg.Source.Kube.Kubeconfig != "" { // the API server may provide the endpoints
		unserved = nil
	}
	c.addProblems(fault.Problem, slices.Concat(m.Problems, m.Locate(problems)))
	if len(m.Problems)+len(problems) == 0 { // otherwise, a problem may be why a Service has no endpoints
		c.addProblems(fault.Warning, m.Locate(unserved))
	}
}

func (c *configCheck) addProblems(severity fault.Severity, problems []fault.Fault) {
	for _, p := range problems {
		p.ID, p.Severity = file.ManifestsID, severity
		c.add(p)
	}
}

// planObjects computes a plan from the objects, and returns the plan's problems and a fault for each Service port
// without endpoints.
func planObjects(cfg *config.Config, objects []source.Object) (problems, unserved []fault.Fault) {
	t := tracker.New(tracker.Layer{Name: fileLayer})
	sink := t.Sink(fileLayer)
	for _, obj := range objects {
		sink.Upsert(obj)
	}
	sink.Synced()
	snap, ok := t.Snapshot()
	if !ok {
		return nil, nil
	}
	nobody := func() []source.Holding { return nil }
	p, problems := planner.New(plannerOptions(cfg, families(cfg), nobody)).Plan(snap, nil, nil)
	for _, svc := range snap.Services {
		unserved = append(unserved, planner.UnservedPortFaults(svc, p)...)
	}
	return slices.DeleteFunc(slices.Clone(problems), func(p fault.Fault) bool {
		return p.Object.Kind == "" // the fault concerns this host, not an object
	}), unserved
}
