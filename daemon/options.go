package daemon

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
	"edgeway/proxiers/serviceroutes"
)

func plannerOptions(cfg *config.Config, families []plan.Family, held func() []source.Holding) planner.Options {
	p := cfg.Proxy
	return planner.Options{
		Families:           families,
		NodeName:           cfg.Node.Name,
		NodeAddresses:      cfg.Node.Addresses,
		Zone:               cfg.Node.Zone,
		LocalAsCluster:     cfg.Node.LocalPolicy == config.LocalCluster,
		MasqueradeAll:      p.MasqueradeAll,
		Pods:               podDetection(p),
		NodePorts:          nodePorts(p.NodePortAddresses),
		ServiceCIDRs:       p.ServiceCIDRs,
		OwnRoutes:          cfg.Routes.Services != config.RoutesNever,
		AllowExternalIPs:   p.AllowExternalIPs.Prefixes,
		AllowHostIPs:       p.AllowExternalIPs.Host,
		AllowLoadBalancers: p.AllowLoadBalancers.Prefixes, AllowHostLoadBalancers: p.AllowLoadBalancers.Host,
		OwnPorts:          ownPorts(cfg),
		DenyEndpoints:     p.DenyEndpoints.Prefixes,
		DenyHostEndpoints: p.DenyEndpoints.Host,
		NodePortRange:     planner.PortRange(p.NodePortRange),
		LongLived:         longLived(cfg.FastPath),
		Held:              held,
	}
}

func longLived(f config.FastPath) map[tracker.Name]bool {
	if !f.Enabled {
		return nil
	}
	out := map[tracker.Name]bool{}
	for _, s := range f.Services {
		out[tracker.Name{Namespace: s.Namespace, Name: s.Name}] = true
	}
	return out
}

// ownPorts maps the ports of the daemon's servers to their keys. A reload may have a server listen after the first
// plan.
func ownPorts(cfg *config.Config) map[uint16]string {
	own := map[uint16]string{}
	for key, addr := range map[string]string{
		"health.address":  cfg.Health.Address,
		"metrics.address": cfg.Metrics.Address,
	} {
		if _, port, err := net.SplitHostPort(addr); err == nil {
			n, _ := strconv.ParseUint(port, 10, 16) // checked when the configuration was loaded
			own[uint16(n)] = key
		}
	}
	return own
}

// LoadConfig reads the configuration; see config.Load.
func LoadConfig(path string) (*config.Config, error) { return config.Load(path, Choices()) }

// Choices returns the values of proxy.backend with their documentation.
func Choices() []config.Choice {
	var out []config.Choice
	for _, b := range Backends() {
		c := config.Choice{Name: b.Name, Doc: b.Doc}
		for _, s := range b.Settings {
			c.Settings = append(c.Settings,
				config.Setting{Name: s.Name, Doc: s.Doc, Value: s.Default, Default: s.Default, Values: s.Values})
		}
		out = append(out, c)
	}
	return out
}

// hostOptions excludes addresses and routes that are not the host's own: those of backends, the routes to Services, and
// kube-ipvs0, to which kube-proxy in its ipvs mode binds the addresses of all Services for good.
func hostOptions(cfg *config.Config) nodeinfo.Options {
	out := nodeinfo.Options{
		IgnoreDevices: []string{"kube-ipvs0"}, IgnoreTables: ignoredRouteTables(),
		Ranges: cfg.Proxy.ServiceCIDRs, IgnoreProtocol: serviceroutes.Protocol,
	}
	for _, b := range Backends() {
		out.IgnoreDevices = append(out.IgnoreDevices, b.Traits.Devices...)
	}
	return out
}

func nodePorts(n config.NodePortAddresses) planner.NodePortAddresses {
	out := planner.NodePortAddresses{Primary: n.Primary, Localhost: n.Localhost, Prefixes: n.Prefixes}
	if n.All {
		out.Prefixes = append(slices.Clone(out.Prefixes), netip.PrefixFrom(netip.IPv4Unspecified(), 0),
			netip.PrefixFrom(netip.IPv6Unspecified(), 0))
	}
	return out
}

func podDetection(p config.Proxy) planner.PodDetection {
	switch p.LocalDetection {
	case config.DetectClusterCIDR:
		return planner.PodDetection{CIDRs: p.ClusterCIDRs}
	case config.DetectNodeCIDR:
		return planner.PodDetection{NodeCIDRs: true}
	case config.DetectBridge:
		return planner.PodDetection{Interfaces: []string{p.BridgeInterface}}
	case config.DetectPrefix:
		return planner.PodDetection{Interfaces: []string{p.InterfaceNamePrefix + "*"}}
	}
	return planner.PodDetection{}
}

// kernelFamilies returns the address families that the kernel supports. A kernel with ipv6.disable=1 does not have this
// file, and refuses IPv6 rules.
func kernelFamilies() []plan.Family {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return []plan.Family{plan.IPv4}
	}
	return []plan.Family{plan.IPv4, plan.IPv6}
}

// families returns the configured address families, or those that the host has. IPv6 may be missing from the kernel, or
// disabled for all interfaces (kube-proxy looks at both, too).
func families(cfg *config.Config) []plan.Family {
	if len(cfg.Proxy.IPFamilies) > 0 {
		return cfg.Proxy.IPFamilies
	}
	const allDisabled = "/proc/sys/net/ipv6/conf/all/disable_ipv6"
	disabled, err := os.ReadFile(allDisabled)
	if err != nil || strings.TrimSpace(string(disabled)) == "1" {
		return []plan.Family{plan.IPv4}
	}
	return []plan.Family{plan.IPv4, plan.IPv6}
}
