package daemon

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"

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
	if _, err := backend(config.Default().Proxy.Backend); err != nil {
		t.Error(err)
	}
	if _, err := backend("none"); err == nil {
		t.Error("an unknown backend is no error")
	}
	var names, choices []string
	for _, c := range Choices() {
		choices = append(choices, c.Name)
	}
	for _, b := range Backends() {
		names = append(names, b.Name)
		if b.Name == "" || b.Probe == nil || b.New == nil {
			t.Errorf("backend %q is incomplete", b.Name)
		}
	}
	if diff := cmp.Diff(choices, names); diff != "" {
		t.Errorf("what the configuration takes, and what there is:\n%s", diff)
	}
}
