package flowtable

import (
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers"
	"edgeway/proxiers/ebpf"
	"edgeway/proxiers/iptables"
	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
	"edgeway/test/plantest"
)

// On a kernel that does not support flowtables, the follower reports a fault, but Apply returns no error.
func TestKernelWithoutFlowtable(t *testing.T) {
	err := Component(nil).Probe(t.Context())
	if err == nil {
		t.Skip("the kernel supports flowtables")
	}
	f, failed := newFollower(proxiers.Env{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Families: both, Drift: func(string) {}, Wake: func() {},
	}, nil)
	if failed != nil {
		t.Fatal(failed)
	}
	defer f.Close()
	base := plantest.Plan(plantest.Node(), longLivedPorts()...)
	if err := f.Apply(t.Context(), proxiers.NewChange(nil, base)); err != nil {
		t.Errorf("full sync: %v", err)
	}
	if err := f.Apply(t.Context(), proxiers.NewChange(base, plantest.Plan(plantest.Node()))); err != nil {
		t.Errorf("partial sync: %v", err)
	}
	if !f.blocked() {
		t.Error("the follower reports no fault")
	}
	if m := gathered(t, f); m["edgeway_fastpath_available"] != 0 || len(m) != 1+int(numReasons) {
		t.Errorf("metrics: %v", m)
	}
}

func gathered(t *testing.T, c prometheus.Collector) map[string]float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			name := family.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetValue()
			}
			out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	return out
}

func TestTakesConnectionsToEveryFrontend(t *testing.T) {
	w := newWorld(t, nftables.Component())
	w.apply(w.webService(1)...)
	for _, p := range []plan.Protocol{plan.TCP, plan.UDP} {
		for _, to := range []netip.Addr{service4, service6} {
			w.wantOffloaded(fmt.Sprintf("%s to %s", p, to), w.open(p, to, servicePort))
			node := netlab.NodeAddr4
			if to.Is6() {
				node = netlab.NodeAddr6
			}
			w.wantOffloaded(fmt.Sprintf("%s to the NodePort of %s", p, node), w.open(p, node, nodePort))
		}
	}
	f := w.stages[1].(*follower)
	state, err := f.Offloading(t.Context())
	if err != nil || len(state.Services) != 4 || !slices.Contains(state.Devices, "client") ||
		!slices.Contains(state.Devices, "one") {
		t.Errorf("%d ServicePorts between %q: %v", len(state.Services), state.Devices, err)
	}
	// The kernel stops offloading a connection after 30 s without a packet, so the test expects only the last
	// connection to be in the flowtable.
	if last := state.Services[len(state.Services)-1]; last.Flows == 0 || last.Name.Protocol != plan.UDP ||
		last.Family != plan.IPv6 {
		t.Errorf("the last one: %+v of %s %s", last, last.Name, last.Family)
	}
	if m := gathered(t, f); m["edgeway_fastpath_available"] != 1 || m["edgeway_fastpath_connections"] == 0 ||
		m["edgeway_fastpath_service_ports"] != 4 || m["edgeway_fastpath_devices"] != float64(len(state.Devices)) {
		t.Errorf("metrics: %v", m)
	}
}

// The kernel does not offload a connection to an address that is not the Service's, even if the Service uses the same
// port and another program translates the connection.
func TestForeignTraffic(t *testing.T) {
	w := newWorld(t, nftables.Component())
	w.apply(w.webService(1, func(s *plan.ServicePort) { s.Frontends[1].Port = endpointPort })...)
	w.nft("add table ip docker; add chain ip docker pre { type nat hook prerouting priority -150; }" +
		"; add rule ip docker pre ip daddr 203.0.113.99 meta l4proto { tcp, udp } dnat to 10.244.2.7:8080")
	t.Cleanup(func() { w.nft("delete table ip docker") })
	w.wantOffloaded("the Service's", w.open(plan.TCP, service4, servicePort))
	for _, p := range []plan.Protocol{plan.TCP, plan.UDP} {
		w.wantRules(fmt.Sprintf("%s, not translated", p), w.open(p, w.endpoints[1].Addr(service4), endpointPort))
		for _, port := range []uint16{servicePort, endpointPort, nodePort} {
			w.wantRules(fmt.Sprintf("%s, port %d of others", p, port), w.open(p, plantest.Addr("203.0.113.99"), port))
		}
	}
}

// The kernel also offloads connections that iptables translates, until their Service opts out.
func TestBesideIPTables(t *testing.T) {
	for _, backend := range iptables.Components() {
		if backend.Resolve != nil {
			continue // skip an alias of another backend
		}
		t.Run(backend.Name, func(t *testing.T) {
			if err := backend.Probe(t.Context()); err != nil {
				t.Fatal(err)
			}
			w := newWorld(t, backend)
			w.apply(w.webService(1)...)
			tcp, udp := w.open(plan.TCP, service4, servicePort), w.open(plan.UDP, netlab.NodeAddr6, nodePort)
			w.wantOffloaded("TCP", tcp)
			w.wantOffloaded("UDP to a NodePort", udp)
			w.apply(w.webService(1, func(s *plan.ServicePort) { s.LongLived = false })...)
			w.wantRules("TCP, after the opt-out", tcp)
			w.wantRules("UDP, after the opt-out", udp)
		})
	}
}

// The kernel also offloads connections that the ebpf backend's tc program adds to connection tracking, until their
// Service opts out.
func TestBesideBPF(t *testing.T) {
	w := newWorld(t, ebpf.ComponentIn(filepath.Join(os.TempDir(), fmt.Sprintf("edgeway-bpf-fast-%d", os.Getpid()))))
	w.apply(w.webService(1)...)
	const taken = "edgeway_ebpf_connections_total TCP packet"
	backend := w.stages[0].(prometheus.Collector)
	before := gathered(t, backend)[taken]
	tcp, udp := w.open(plan.TCP, service4, servicePort), w.open(plan.UDP, netlab.NodeAddr6, nodePort)
	w.wantOffloaded("TCP", tcp)
	w.wantOffloaded("UDP to a NodePort", udp)
	if now := gathered(t, backend)[taken]; now != before+1 {
		t.Fatalf("%v connections were begun by BPF, not that of TCP alone", now-before)
	}
	w.apply(w.webService(1, func(s *plan.ServicePort) { s.LongLived = false })...)
	w.wantRules("TCP, after the opt-out", tcp)
	w.wantRules("UDP, after the opt-out", udp)
}

// Mark bits that other programs set do not prevent offloading, and Edgeway does not clear them. The test sets the 16
// highest bits and Kubernetes' default masquerade bit. In this test, Edgeway uses a different masquerade bit.
func TestForeignMarks(t *testing.T) {
	w := newWorld(t, nftables.Component())
	w.end()
	w.env.MasqueradeBit = 13
	w.start()
	w.nft("add chain inet watch marks { type filter hook prerouting priority -150; }; add rule inet watch marks meta mark set 0xffff4000" +
		"; add counter inet watch kept; add counter inet watch changed" +
		"; add chain inet watch after { type filter hook postrouting priority 300; }" +
		"; add rule inet watch after meta l4proto tcp meta mark 0xffff4000 counter name kept; add rule inet watch after meta l4proto tcp meta mark != 0xffff4000 iifname client counter name changed")
	w.apply(w.webService(1)...)
	w.wantOffloaded("marked", w.open(plan.TCP, service4, servicePort))
	other := w.open(plan.TCP, w.endpoints[1].Addr(service4), endpointPort)
	w.wantRules("marked, of others", other)
	if out := w.nft("list counter inet watch changed"); packets.FindStringSubmatch(out)[1] != "0" {
		t.Errorf("marks were changed: %s", out)
	}
	if out := w.nft("list counter inet watch kept"); packets.FindStringSubmatch(out)[1] == "0" {
		t.Errorf("no marks were seen: %s", out)
	}
}

func (w *world) restart() {
	w.Helper()
	w.end()
	w.mu.Lock()
	last := w.plan
	w.plan = nil
	w.mu.Unlock()
	w.start()
	w.apply(last.Services...)
}

// While the Service, the devices and the ruleset change, no connection hangs, and each connection uses the fast path or
// traverses the rules as expected.
func TestLifeCycle(t *testing.T) {
	w := newWorld(t, nftables.Component())
	w.apply(w.webService(2)...)
	tcp, udp := w.open(plan.TCP, service4, servicePort), w.open(plan.UDP, service6, servicePort)
	step := func(what string, do func(), after func(string, *netlab.Session)) {
		t.Helper()
		w.wantOffloaded("before: "+what, tcp)
		w.wantOffloaded("before: "+what, udp)
		start := time.Now()
		do()
		took := time.Since(start)
		after(what, tcp)
		after(what, udp)
		t.Logf("%s: in force after %s", what, took.Round(time.Millisecond))
	}
	step("opt-out", func() {
		w.apply(w.webService(2, func(s *plan.ServicePort) { s.LongLived = false })...)
	}, w.wantRules)
	w.apply(w.webService(2)...)
	step("tightened source range", func() {
		w.apply(w.webService(2, func(s *plan.ServicePort) { s.Frontends[1].AllowFrom = []netip.Prefix{} })...)
	}, w.wantOffloaded)
	step("a further frontend", func() {
		w.apply(w.webService(2, func(s *plan.ServicePort) {
			more := s.Frontends[0]
			more.Port++
			s.Frontends = append(s.Frontends, more)
		})...)
	}, w.wantOffloaded)
	step("removed frontend", func() {
		w.apply(w.webService(2, func(s *plan.ServicePort) { s.Frontends = s.Frontends[1:] })...)
	}, w.wantRules)
	w.apply(w.webService(2)...)
	// The connection to the removed endpoint continues, as it does without the fast path.
	step("endpoint removal", func() { w.apply(w.webService(1)...) }, w.wantOffloaded)
	step("a device comes", func() {
		maintains := w.maintainCalls.Load()
		three := w.newEndpoint("three", 3)
		w.until("the device is looked at", func() bool { return w.maintainCalls.Load() > maintains })
		w.endpoints[0] = three
		w.apply(w.webService(1)...)
		w.wantOffloaded("by a new device", w.open(plan.TCP, service4, servicePort))
	}, w.wantOffloaded)
	step("a device goes", func() { w.run("", "ip", "link", "del", "three") }, w.wantOffloaded)
	step("a daemon restarts", w.restart, w.wantOffloaded)
	step("nft flush ruleset", func() {
		w.nft("flush ruleset")
		w.until("the table is back", func() bool {
			return exec.Command("nft", "list", "table", "inet",
				tableName).Run() == nil
		})
		w.nft("add table inet watch; add counter inet watch seen; add chain inet watch forward { type filter hook forward priority -200; }; add rule inet watch forward counter name seen")
	}, w.wantOffloaded)
}

// A new firewall rule drops an offloaded connection's packets. The connection recovers when the test removes the
// firewall rule.
func TestForeignDrop(t *testing.T) {
	w := newWorld(t, nftables.Component())
	w.apply(w.webService(1)...)
	s := w.open(plan.UDP, service4, servicePort)
	w.wantOffloaded("before", s)
	w.nft("add table ip firewall; add chain ip firewall forward { type filter hook forward priority 0; }; add rule ip firewall forward udp dport 8080 drop")
	start := time.Now()
	silent := 0 // on a busy machine, a response may be late
	var since time.Duration
	w.until("the drop holds", func() bool {
		asked := time.Now()
		if s.Ask(200*time.Millisecond).Result != netlab.Silent {
			silent = 0
		} else if silent++; silent == 1 {
			since = asked.Sub(start)
		}
		return silent == 10
	})
	t.Logf("the drop held after %s at most", since.Round(time.Millisecond))
	w.nft("delete table ip firewall")
	w.wantOffloaded("after", s)
}

// While another program constantly changes its rules, the follower rewrites the nftables table at most once a second.
// The follower rewrites the table only if forwarded packets reach the changed objects.
func TestPace(t *testing.T) {
	w := newWorld(t, nftables.Component())
	w.apply(w.webService(1)...)
	s := w.open(plan.TCP, service4, servicePort)
	writes := func() uint64 { return w.stages[1].(*follower).writes[ofRules].Load() }
	for _, hook := range []string{"input", "forward"} {
		w.nft(fmt.Sprintf("add table ip firewall; add set ip firewall blocked { type ipv4_addr; }; add chain ip firewall c { type filter hook %s priority 0; }"+
			"; add rule ip firewall c ip saddr @blocked drop", hook))
		time.Sleep(3 * inspectionInterval)
		start, before := time.Now(), writes()
		for i := 0; time.Since(start) < 5*time.Second; i++ {
			w.nft(fmt.Sprintf("add element ip firewall blocked { 203.0.113.%d }", i%250))
			w.ask(s)
		}
		n, most := int(writes()-before), int(time.Since(start)/inspectionInterval)+2
		if hook == "input" && n > 0 || hook == "forward" && (n < 1 || n > most) {
			t.Errorf("%s: the table was written %d times in %s", hook, n, time.Since(start).Round(time.Second))
		}
		w.nft("delete table ip firewall")
		time.Sleep(3 * inspectionInterval)
	}
}

// The follower can write the nftables table even while devices appear and disappear.
func TestDeviceRace(t *testing.T) {
	w := newWorld(t, nftables.Component())
	w.apply(w.webService(1)...)
	s := w.open(plan.TCP, service4, servicePort)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := range 60 {
			name := fmt.Sprintf("race%d", i%4)
			_ = exec.Command("ip", "link", "add", name, "type", "veth", "peer", "name", "r"+name).Run()
			_ = exec.Command("ip", "link", "del", name).Run()
		}
	}()
	for i := 0; ; i++ {
		select {
		case <-ended:
			w.wantOffloaded("after the race", s)
			return
		default:
		}
		w.apply(w.webService(1 + i%2)...)
		w.ask(s)
	}
}

func (w *world) until(what string, is func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("%s: not within %s", what, patience)
		}
	}
}
