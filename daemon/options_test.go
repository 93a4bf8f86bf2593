package daemon

import (
	"net/netip"
	"reflect"
	"slices"
	"testing"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
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

// A NodePort is within the range, and leaves the daemon's own servers alone: they may not listen yet.
func TestPortRefusal(t *testing.T) {
	cfg := config.Default()
	open := portRefusal(cfg)
	for _, port := range []uint16{10249, 10256} {
		if open(plan.TCP, port) == "" || open(plan.UDP, port) != "" {
			t.Errorf("port %d: TCP %q, UDP %q", port, open(plan.TCP, port), open(plan.UDP, port))
		}
	}
	if why := open(plan.TCP, 22); why != "" {
		t.Error(why)
	}
	cfg.Proxy.NodePortRange = config.PortRange{First: 30000, Last: 32767}
	fenced := portRefusal(cfg)
	for port, allowed := range map[uint16]bool{22: false, 29999: false, 30000: true, 32767: true, 32768: false} {
		if why := fenced(plan.UDP, port); (why == "") != allowed {
			t.Errorf("port %d: %q", port, why)
		}
	}
}

// A plan beside the running daemon does not take the daemon's own health checks for another program.
func TestDryRunBesideTheDaemon(t *testing.T) {
	snap := &tracker.Snapshot{Services: []*tracker.Service{{Spec: &source.Service{HealthCheckNodePort: 31000}}, {Spec: &source.Service{}}}}
	of := func(addr string, p plan.Protocol) nodeinfo.Listener {
		return nodeinfo.Listener{Protocol: p, Addr: netip.MustParseAddrPort(addr)}
	}
	program := []nodeinfo.Listener{of("0.0.0.0:31000", plan.TCP), of("192.0.2.1:22", plan.TCP), of("192.0.2.1:31000", plan.UDP)}
	host := &nodeinfo.Host{Listeners: append(slices.Clone(program), of("192.0.2.1:31000", plan.TCP))}
	if got := withoutHealthChecks(host, snap).Listeners; !slices.Equal(got, program) {
		t.Errorf("got %v, want %v", got, program)
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

// The routes of virtual servers (proxiers/ipvs) and the addresses of kube-proxy's device are not this host's network.
func TestWhatProxiesMakeIsIgnored(t *testing.T) {
	got := ofProxies()
	if !slices.Contains(got.IgnoreDevices, "kube-ipvs0") || !slices.Contains(got.IgnoreTables, 237) {
		t.Errorf("ignored: %+v", got)
	}
}
