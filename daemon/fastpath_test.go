package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// offloader is a proxiers.Offloader that reports one fast-path connection per ServicePort.
type offloader struct {
	missing  string
	services []*plan.ServicePort
}

func (o offloader) Faults() []fault.Fault {
	if o.missing == "" {
		return nil
	}
	return []fault.Fault{{ID: proxiers.FastPathFault, Message: o.missing}}
}

func (o offloader) Offloading(context.Context) (proxiers.Offloading, error) {
	out := proxiers.Offloading{Devices: []string{"eth0"}}
	for _, svc := range o.services {
		out.Services = append(out.Services, proxiers.OffloadedService{
			Name: svc.Name, Family: svc.Family, Flows: 1,
			Packets: 7, Bytes: 700,
		})
	}
	return out, nil
}

// fastPath.explain returns the first reason that excludes a connection from the fast path.
func TestFastPathReasons(t *testing.T) {
	web := &plan.ServicePort{
		Name:      plan.ServicePortName{Namespace: "default", Name: "web", Protocol: plan.TCP},
		LongLived: true,
	}
	other := &plan.ServicePort{Name: web.Name}
	eth0, lo := nodeinfo.NextHop{Interface: "eth0"}, nodeinfo.NextHop{Interface: "lo", Local: true}
	on := config.FastPath{Enabled: true}
	alone := proxiers.Component{Name: "alone", Traits: proxiers.Traits{NoFastPathReason: "it translates by itself"}}
	for _, c := range []struct {
		cfg     config.FastPath
		backend proxiers.Component
		missing string
		svc     *plan.ServicePort
		origin  plan.Origin
		hop     nodeinfo.NextHop
		want    string
	}{
		{config.FastPath{}, proxiers.Component{}, "", other, plan.FromOutside, eth0, ""},
		{config.FastPath{}, proxiers.Component{}, "", web, plan.FromOutside, eth0, "no: the Service has opted in, but fastpath.enabled is false"},
		{on, proxiers.Component{}, "", web, plan.FromOutside, eth0, "yes, after the endpoint's first reply"},
		{on, proxiers.Component{}, "", web, plan.FromPod, eth0, "yes, after the endpoint's first reply"},
		{on, proxiers.Component{}, "", other, plan.FromOutside, eth0, "no: the Service has not opted in"},
		{on, proxiers.Component{}, "", web, plan.FromHost, eth0, "no: the fast path is for forwarded connections"},
		{on, proxiers.Component{}, "", web, plan.FromOutside, lo, "no: the client or the endpoint is on this host"},
		{on, proxiers.Component{}, "no flowtable", web, plan.FromOutside, eth0, "no: no flowtable"},
		{on, alone, "", web, plan.FromOutside, eth0, "no: alone does not support the fast path: it translates by itself"},
	} {
		f := &fastPath{cfg: c.cfg, backend: c.backend, offloader: offloader{missing: c.missing}}
		if got := f.explain(c.svc, c.origin, []nodeinfo.NextHop{c.hop}); !strings.HasPrefix(got, c.want) ||
			c.want == "" && got != "" {
			t.Errorf("%+v: %q, want %q", c.cfg, got, c.want)
		}
		if told, want := len(f.faults()), c.missing != "" || c.backend.Name != ""; (told > 0) != want {
			t.Errorf("%+v: %d faults", c, told)
		}
	}
}

func TestUnsupportedFastPathIsCleanedUp(t *testing.T) {
	cfg := config.Default()
	cfg.FastPath.Enabled = true
	for _, c := range []struct {
		traits proxiers.Traits
		on     bool
	}{{proxiers.Traits{}, true}, {proxiers.Traits{NoFastPathReason: "why"}, false}} {
		backend := proxiers.Component{Name: "some", Traits: c.traits}
		all := followers(cfg, backend, sharedComponents{})
		found := false
		for _, f := range all {
			found = found || f.Name == "flowtable" && f.enabled == c.on
		}
		removed := false
		for _, left := range unusedComponents(nil, backend.Name, all) {
			removed = removed || left.Name == "flowtable"
		}
		if !found || removed == c.on {
			t.Errorf("%+v: found %v, removed %v", c.traits, found, removed)
		}
	}
}

// The follower does not treat the backends' chains in shared nftables tables as another program's rules. Otherwise,
// each change to a Service would return all offloaded connections to the rules.
func TestFastPathIgnoresBackendChains(t *testing.T) {
	const patience = 30 * time.Second
	node := netlab.New(t, netlab.Options{}).Node
	nft := func(format string, args ...any) {
		t.Helper()
		if out, err := node.Command(t.Context(), "nft", fmt.Sprintf(format, args...)).CombinedOutput(); err != nil {
			t.Fatalf("nft: %v: %s", err, out)
		}
	}
	tables := []string{"ip nat", "ip filter", "ip6 nat", "ip6 filter"} // the tables of iptables-nft
	for _, table := range tables {
		nft("add table %s", table)
	}
	cfg := config.Default()
	cfg.FastPath.Enabled = true
	all := followers(cfg, proxiers.Component{}, sharedComponents{})
	flowtable := all[slices.IndexFunc(all, func(f follower) bool { return f.Name == "flowtable" })]
	drift, woken := make(chan string, 1), make(chan struct{}, 1)
	err := node.Do(func() error {
		p, err := flowtable.New(t.Context(), proxiers.Env{
			Logger: slog.New(slog.DiscardHandler), Families: []plan.Family{plan.IPv4, plan.IPv6},
			Drift: func(what string) { drift <- what }, Wake: func() { woken <- struct{}{} }, Progress: func(int, int) {},
		})
		if err == nil {
			t.Cleanup(func() { _ = p.Close() })
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range tables {
		nft("add chain %[1]s KUBE-SERVICES; add rule %[1]s KUBE-SERVICES accept", table)
	}
	nft("add table inet kube-proxy-flowtable") // the follower processes the notifications in order
	select {
	case <-drift:
	case <-time.After(patience):
		t.Fatal("the follower does not report a change to its table")
	}
	if len(woken) > 0 {
		t.Fatal("a backend's chains count as another program's")
	}
	nft("add chain ip filter other")
	select {
	case <-woken:
	case <-time.After(patience):
		t.Error("another program's chain does not count")
	}
}

func TestFastPathStatus(t *testing.T) {
	web := &plan.ServicePort{
		Name:   plan.ServicePortName{Namespace: "default", Name: "web", Protocol: plan.TCP},
		Family: plan.IPv4,
	}
	f := &fastPath{offloader: offloader{services: []*plan.ServicePort{web}}}
	if f.status() != nil {
		t.Error("it is not enabled")
	}
	f.cfg.Enabled = true
	if s := f.status(); len(s.Services) != 1 || s.Services[0].Flows != 1 || s.Services[0].Bytes != 700 ||
		len(s.Devices) != 1 {
		t.Errorf("%+v", s)
	}
	f.offloader = offloader{missing: "no flowtable"}
	if s := f.status(); s != nil {
		t.Errorf("%+v", s)
	}
}
