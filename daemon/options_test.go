package daemon

import (
	"reflect"
	"slices"
	"testing"

	"edgeway/daemon/config"
	"edgeway/proxiers/plan"
)

func TestConfiguredFamilies(t *testing.T) {
	cfg := config.Default()
	cfg.Proxy.IPFamilies = []plan.Family{plan.IPv6}
	if got := families(cfg); !reflect.DeepEqual(got, []plan.Family{plan.IPv6}) {
		t.Errorf("%v", got)
	}
}

// The planner receives the ports of the daemon's own servers.
func TestPlannerOptionsPorts(t *testing.T) {
	opts := plannerOptions(config.Default(), nil, nil)
	if want := map[uint16]string{10249: "metrics.address", 10256: "health.address"}; !reflect.DeepEqual(opts.OwnPorts,
		want) {
		t.Errorf("own ports %v, want %v", opts.OwnPorts, want)
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

// The Watcher ignores the addresses on kube-proxy's device and the routes that proxiers/ipvs adds for virtual servers,
// because neither belongs to this host's network.
func TestHostOptionsIgnoreProxyState(t *testing.T) {
	got := hostOptions(config.Default())
	if !slices.Contains(got.IgnoreDevices, "kube-ipvs0") || !slices.Contains(got.IgnoreTables, 237) {
		t.Errorf("ignored: %+v", got)
	}
}
