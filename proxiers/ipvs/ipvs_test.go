package ipvs

import (
	"errors"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

var update = flag.Bool("update", false, "write the golden files")

func TestTable(t *testing.T) {
	env := proxiers.Env{Families: []plan.Family{plan.IPv4, plan.IPv6}, MasqueradeBit: 14}
	for _, c := range plantest.Changes() {
		tx := nfttable.Render(schema(allocate(c.Next), false), env, proxiers.NewChange(c.Prev, c.Next))
		plantest.CompareGolden(t, *update, c.Name, tx)
	}
	first := plantest.Plan(plantest.Node(), plantest.SampleServices()...)
	plantest.CompareGolden(t, *update, "first",
		nfttable.Render(schema(allocate(first), false), env, proxiers.NewChange(nil, first)))
}

// TestProbe verifies that nft and the kernel accept the table, even if the host lacks IPVS.
func TestProbe(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("root is needed to have nft check rules")
	}
	if err := nfttable.Probe(t.Context(), schema(&allocator{}, false), nftables.Sample()); err != nil {
		t.Error(err)
	}
}

func TestNoIPVS(t *testing.T) {
	if _, err := os.Stat(serverList); err == nil {
		t.Skip("this kernel has IPVS; the virtual machines' conformance asks the rest")
	}
	c := Component()
	err := c.Probe(t.Context())
	_, err2 := c.New(t.Context(), proxiers.Env{})
	if !errors.Is(err, proxiers.ErrUnsupported) || !errors.Is(err2, proxiers.ErrUnsupported) {
		t.Errorf("probe: %v; new: %v", err, err2)
	}
}

func TestWhyNot(t *testing.T) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	modules := t.TempDir()
	list := filepath.Join(modules, unix.ByteSliceToString(name.Release[:]), "modules.dep")
	if got := missingReason(modules); !strings.Contains(got, "not loaded") {
		t.Errorf("modules cannot be looked at: %s", got)
	}
	if err := os.MkdirAll(filepath.Dir(list), 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{
		"kernel/net/netfilter/ipvs/ip_vs.ko.xz: kernel/net/netfilter/nf_conntrack.ko\n": "not loaded",
		"kernel/net/netfilter/nf_conntrack.ko:\n":                                       "has no IPVS",
	} {
		if err := os.WriteFile(list, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := missingReason(modules); !strings.Contains(got, want) {
			t.Errorf("%q: %s", text, got)
		}
	}
}

func TestPlaces(t *testing.T) {
	pools := [2][]plan.Endpoint{
		{{Addr: netip.MustParseAddrPort("10.0.0.1:80")}},
		{{Addr: netip.MustParseAddrPort("10.0.0.2:80")}},
	}
	service := func(name string, frontends ...plan.Frontend) *plan.ServicePort {
		return &plan.ServicePort{
			Name:   plan.ServicePortName{Namespace: "default", Name: name, Protocol: plan.TCP},
			Family: plan.IPv4, Pools: pools, Frontends: frontends,
		}
	}
	at := func(kind plan.FrontendKind, text string) plan.Frontend {
		a := netip.MustParseAddrPort(text)
		return plan.Frontend{Kind: kind, Addr: a.Addr(), Port: a.Port()}
	}
	web := service("web", at(plan.ClusterIP, "10.96.0.1:80"), at(plan.LoadBalancerIP, "192.0.2.1:80"))
	near := service("near", at(plan.ClusterIP, "10.96.0.1:10080"))
	last := service("last", at(plan.ClusterIP, "10.96.0.1:55536"))
	nodePort := service("port", plan.Frontend{Kind: plan.NodePort, Port: 30080})
	outside := service("out", at(plan.ExternalIP, "192.0.2.9:80"))
	p := allocate(&plan.Plan{Services: []*plan.ServicePort{near, web, last, nodePort, outside}})
	for svc, want := range map[*plan.ServicePort][2]string{
		// Another Service has port 10080, and that Service's virtual server has port 20080.
		web:      {"10.96.0.1:10081", "10.96.0.1:20081"},
		near:     {"10.96.0.1:20080", "10.96.0.1:30080"},
		last:     {"10.96.0.1:20082", "10.96.0.1:10000"},
		nodePort: {"192.0.0.8:40080", "192.0.0.8:50080"},
		outside:  {"192.0.2.9:10080", "192.0.2.9:20080"},
	} {
		for pool, text := range want {
			if got := p.serverAddr(svc, plan.Pool(pool)).String(); got != text {
				t.Errorf("%s, %s pool: %s, want %s", svc.Name, plan.Pool(pool), got, text)
			}
		}
	}
}

// A partial sync is possible unless a server would collide with another server or with a frontend.
func TestPlacesAreStable(t *testing.T) {
	service := func(name, at string) *plan.ServicePort {
		a := netip.MustParseAddrPort(at)
		return &plan.ServicePort{
			Name:   plan.ServicePortName{Namespace: "default", Name: name, Protocol: plan.TCP},
			Family: plan.IPv4, Frontends: []plan.Frontend{{Kind: plan.ClusterIP, Addr: a.Addr(), Port: a.Port()}},
			Pools: [2][]plan.Endpoint{{{Addr: netip.MustParseAddrPort("10.0.0.1:80")}}},
		}
	}
	before := []*plan.ServicePort{
		service("a", "10.96.0.1:30000"), service("b", "10.96.0.2:80"),
		service("c", "10.96.0.2:10080"),
	}
	for at, want := range map[string]bool{
		"10.96.0.1:80":    true,
		"10.96.0.9:30000": true,
		"10.96.0.1:20000": false, // a server would use the port of a's frontend
		"10.96.0.1:10000": false,
		"10.96.0.1:40000": false, // a's server uses this port
		"10.96.0.1:50000": false,
		"10.96.0.3:55536": false, // a server would be at port 65536, which does not exist
		"10.96.0.2:7":     false, // other servers at this address already have different ports than usual
	} {
		prev := &plan.Plan{Node: plantest.Node(), Services: before}
		next := &plan.Plan{Node: prev.Node, Services: append(slices.Clone(before), service("d", at))}
		p := allocate(prev)
		if got := p.updateBaseAddrs(proxiers.NewChange(prev, next)); got != want {
			t.Errorf("%s: a partial sync: %t, want %t", at, got, want)
		}
		if want && !p.updateBaseAddrs(proxiers.NewChange(next, prev)) {
			t.Errorf("%s: its removal is no partial sync", at)
		}
		if want && len(p.baseAddrs) != len(before) {
			t.Errorf("%s: %d anchors are left", at, len(p.baseAddrs))
		}
	}
}

// For an unknown scheduler, Edgeway returns an error that lists the known schedulers, before the kernel tries to load a
// module.
func TestScheduler(t *testing.T) {
	p := &proxier{settings: settings{scheduler: "wrr"}}
	for asked, want := range map[string]string{"": "wrr", "lc": "lc"} {
		if got := p.scheduler(&plan.ServicePort{Scheduler: asked}); got != want || validateScheduler(got) != nil {
			t.Errorf("%q: %s, %v", asked, got, validateScheduler(got))
		}
	}
	if err := validateScheduler("ftp"); !errors.Is(err, proxiers.ErrRefused) ||
		!strings.Contains(err.Error(), "rr, wrr, lc, wlc") {
		t.Error(err)
	}
}

// An endpoint without a weight gets weight 1, because IPVS sends no connections to an endpoint with weight 0.
func TestWeight(t *testing.T) {
	for asked, want := range map[uint16]int{0: 1, 1: 1, 65535: 65535} {
		if got := destination(plan.Endpoint{
			Addr:   netip.MustParseAddrPort("10.0.0.1:80"),
			Weight: asked,
		}).Weight; got != want {
			t.Errorf("%d: %d, want %d", asked, got, want)
		}
	}
}
