package daemon

import (
	"net/netip"
	"os"
	"slices"
	"strings"

	"edgeway/daemon/config"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/proxiers/conntrack"
	"edgeway/proxiers/plan"
)

func plannerOptions(cfg *config.Config, families []plan.Family, held func() []source.Holding) planner.Options {
	p := cfg.Proxy
	return planner.Options{
		Families:         families,
		NodeName:         cfg.Node.Name,
		NodeAddresses:    cfg.Node.Addresses,
		Zone:             cfg.Node.Zone,
		LocalAsCluster:   cfg.Node.LocalPolicy == config.LocalCluster,
		MasqueradeAll:    p.MasqueradeAll,
		Pods:             podDetection(p),
		NodePorts:        nodePorts(p.NodePortAddresses),
		ServiceCIDRs:     p.ServiceCIDRs,
		AllowExternalIPs: p.AllowExternalIPs.Prefixes,
		AllowHostIPs:     p.AllowExternalIPs.Host,
		Held:             held,
	}
}

// LoadConfig reads the configuration; see config.Load.
func LoadConfig(path string) (*config.Config, error) { return config.Load(path, Choices()) }

// Choices are the backends as the configuration's documentation has them.
func Choices() []config.Choice {
	return []config.Choice{
		{Name: "nftables", Doc: "tables of its own"},
		{Name: "iptables", Doc: "iptables-nft or iptables-legacy, whichever this host uses already"},
		{Name: "iptables-nft", Doc: "chains in the tables of iptables-nft"},
		{Name: "iptables-legacy", Doc: "chains in the tables of iptables-legacy"},
	}
}

// foreignDevices are the network devices whose addresses are not the host's own: kube-proxy in
// the mode ipvs binds all addresses of Services to kube-ipvs0, and leaves them there.
func foreignDevices() []string { return []string{"kube-ipvs0"} }

func nodePorts(n config.NodePortAddresses) planner.NodePortAddresses {
	out := planner.NodePortAddresses{Primary: n.Primary, Localhost: n.Localhost, Prefixes: n.Prefixes}
	if n.All {
		out.Prefixes = append(slices.Clone(out.Prefixes), netip.PrefixFrom(netip.IPv4Unspecified(), 0), netip.PrefixFrom(netip.IPv6Unspecified(), 0))
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

func sysctlSettings(c config.Conntrack) conntrack.Settings {
	return conntrack.Settings{
		MaxPerCore: c.MaxPerCore, Min: c.Min,
		TCPEstablished: c.TCPEstablishedTimeout, TCPCloseWait: c.TCPCloseWaitTimeout,
		UDP: c.UDPTimeout, UDPStream: c.UDPStreamTimeout,
		TCPBeLiberal: c.TCPBeLiberal,
	}
}

// families gives the configured ones, or those that the kernel has: IPv6 can be missing from the
// kernel or be switched off for all interfaces, as kube-proxy asks too.
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
