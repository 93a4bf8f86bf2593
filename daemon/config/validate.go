package config

import (
	"fmt"
	"slices"

	"edgeway/proxiers/plan"
)

// validate reports missing and conflicting keys in the merged configuration.
func (l *loader) validate(mainFile string, c *Config) {
	if c.Source.Kube.Kubeconfig == "" && len(c.Source.File.Paths) == 0 {
		l.addError(mainFile, "", errNoSource)
	}
	seen := make(map[plan.Family]bool)
	for _, a := range c.Node.Addresses {
		f := plan.FamilyOf(a)
		if seen[f] {
			l.addError(mainFile, "node.addresses", fmt.Errorf("has more than one %s address", f))
		}
		seen[f] = true
	}
	l.validateDetection(mainFile, &c.Proxy)
	l.validateDependencies(mainFile, c)
	l.validateChecks(mainFile, c)
}

// validateChecks reports endpoint checks for a source that is not configured.
func (l *loader) validateChecks(mainFile string, c *Config) {
	for _, need := range []struct {
		source CheckedSource
		key    string
		set    bool
	}{
		{CheckedFile, "source.file.paths", len(c.Source.File.Paths) > 0},
		{CheckedKube, "source.kube.kubeconfig", c.Source.Kube.Kubeconfig != ""},
	} {
		if slices.Contains(c.Checks.TCP.Sources, need.source) && !need.set {
			l.addError(mainFile, "checks.tcp.sources",
				fmt.Errorf("contains %q, but %s is not set", need.source, need.key))
		}
	}
}

// validateDependencies reports keys that have no effect because they depend on another key that is not set.
func (l *loader) validateDependencies(mainFile string, c *Config) {
	kube, tcp, usual := c.Source.Kube, c.Checks.TCP, Default().Checks.TCP
	for _, idle := range []struct {
		key, needs string
		set, off   bool
	}{
		{"source.kube.namespaces", "source.kube.kubeconfig", len(kube.Namespaces) > 0, kube.Kubeconfig == ""},
		{"source.kube.label_selector", "source.kube.kubeconfig", kube.LabelSelector != "", kube.Kubeconfig == ""},
		{"source.kube.allow_exec_plugins", "source.kube.kubeconfig", kube.AllowExecPlugins, kube.Kubeconfig == ""},
		{"metrics.web_config", "metrics.address", c.Metrics.WebConfig != "", c.Metrics.Address == ""},
		{"checks.tcp.interval", "checks.tcp.sources", tcp.Interval != usual.Interval, len(tcp.Sources) == 0},
		{"checks.tcp.failures", "checks.tcp.sources", tcp.Failures != usual.Failures, len(tcp.Sources) == 0},
		{"metrics.pprof", "metrics.address", c.Metrics.Pprof, c.Metrics.Address == ""},
	} {
		if idle.set && idle.off {
			l.addError(mainFile, idle.key, fmt.Errorf("is set, but %s is not", idle.needs))
		}
	}
}

// validateDetection reports a local detection mode whose key is missing, and a key that the configured mode ignores.
func (l *loader) validateDetection(mainFile string, p *Proxy) {
	for _, need := range []struct {
		mode LocalDetection
		key  string
		set  bool
	}{
		{DetectClusterCIDR, "proxy.cluster_cidrs", len(p.ClusterCIDRs) > 0},
		{DetectBridge, "proxy.bridge_interface", p.BridgeInterface != ""},
		{DetectPrefix, "proxy.interface_name_prefix", p.InterfaceNamePrefix != ""},
	} {
		switch {
		case p.LocalDetection == need.mode && !need.set:
			l.addError(mainFile, need.key, fmt.Errorf("must be set, because proxy.local_detection is %q", need.mode))
		case p.LocalDetection != need.mode && need.set:
			l.addError(mainFile, need.key,
				fmt.Errorf("is set, but proxy.local_detection is %q, not %q", p.LocalDetection, need.mode))
		}
	}
}
