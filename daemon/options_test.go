package daemon

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"edgeway/daemon/config"
	"edgeway/daemon/planner"
	"edgeway/proxiers/plan"
)

func TestLocalDetectionBecomesPodDetection(t *testing.T) {
	cidr := netip.MustParsePrefix("10.244.0.0/16")
	proxy := config.Proxy{ClusterCIDRs: []netip.Prefix{cidr}, BridgeInterface: "cni0", InterfaceNamePrefix: "veth"}
	for mode, want := range map[config.LocalDetection]planner.PodDetection{
		config.DetectNone:        {},
		config.DetectClusterCIDR: {CIDRs: []netip.Prefix{cidr}},
		config.DetectNodeCIDR:    {NodeCIDRs: true},
		config.DetectBridge:      {Interfaces: []string{"cni0"}},
		config.DetectPrefix:      {Interfaces: []string{"veth*"}},
	} {
		proxy.LocalDetection = mode
		if got := podDetection(proxy); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v", mode, got, want)
		}
	}
}

func TestConfiguredFamiliesWin(t *testing.T) {
	cfg := config.Default()
	cfg.Proxy.IPFamilies = []plan.Family{plan.IPv6}
	if got := families(cfg); !reflect.DeepEqual(got, []plan.Family{plan.IPv6}) {
		t.Errorf("%v", got)
	}
}

func TestEveryBackendOfTheConfigurationExists(t *testing.T) {
	var names []string
	for _, c := range Backends() {
		names = append(names, c.Name)
		if c.Name == "" || c.Doc == "" || c.Resolve == nil && (c.Probe == nil || c.New == nil || c.Cleanup == nil) {
			t.Errorf("backend %q is incomplete", c.Name)
		}
	}
	if !slices.Contains(names, config.Default().Proxy.Backend) {
		t.Errorf("the default is %s, and there are %v", config.Default().Proxy.Backend, names)
	}
}
