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

func TestPodDetectionModes(t *testing.T) {
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

func TestConfiguredFamilies(t *testing.T) {
	cfg := config.Default()
	cfg.Proxy.IPFamilies = []plan.Family{plan.IPv6}
	if got := families(cfg); !reflect.DeepEqual(got, []plan.Family{plan.IPv6}) {
		t.Errorf("%v", got)
	}
}

func TestPlannerOptionsPorts(t *testing.T) {
	opts := plannerOptions(config.Default(), nil, nil)
	if want := map[uint16]string{10249: "metrics.address", 10256: "health.address"}; !reflect.DeepEqual(opts.OwnPorts, want) {
		t.Errorf("own ports %v, want %v", opts.OwnPorts, want)
	}
	if want := (planner.PortRange{First: 30000, Last: 32767}); opts.NodePortRange != want {
		t.Errorf("NodePorts %v, want %v", opts.NodePortRange, want)
	}
}

func TestBackendsAreComplete(t *testing.T) {
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

// The Watcher ignores the routes of virtual servers (proxiers/ipvs) and the addresses on kube-proxy's device, because
// these routes and addresses are not part of this host's network.
func TestHostOptionsIgnoreProxyState(t *testing.T) {
	got := hostOptions(config.Default())
	if !slices.Contains(got.IgnoreDevices, "kube-ipvs0") || !slices.Contains(got.IgnoreTables, 237) {
		t.Errorf("ignored: %+v", got)
	}
}
