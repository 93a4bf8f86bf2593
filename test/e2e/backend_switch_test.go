package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

func withBackend(name string) string { return fmt.Sprintf("[proxy]\nbackend = %q\n", name) }

// load is a set of clients that send requests continuously. Each client sends its next request 1 ms after the previous
// request ends.
type load struct {
	stop chan struct{}
	done sync.WaitGroup

	mu       sync.Mutex
	count    int
	failures []string
}

func startLoad(clients ...func() error) *load {
	w := &load{stop: make(chan struct{})}
	for _, client := range clients {
		w.done.Go(func() { w.repeat(client) })
	}
	return w
}

func (w *load) repeat(client func() error) {
	for {
		select {
		case <-w.stop:
			return
		case <-time.After(time.Millisecond): // leave CPU time to the daemon
		}
		err := client()
		w.mu.Lock()
		w.count++
		if err != nil {
			w.failures = append(w.failures, time.Now().Format("15:04:05.000 ")+err.Error())
		}
		w.mu.Unlock()
	}
}

// newResults returns the number of requests since the previous call, and the errors of the failed requests.
func (w *load) newResults() (count int, failures []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	count, failures = w.count, w.failures
	w.count, w.failures = 0, nil
	return count, failures
}

// verifyEnd waits for the clients' last requests, and fails the test if a request has failed since the previous call of
// newResults. A client can wait for a reply for as long as replyTimeout.
func (w *load) verifyEnd(t *testing.T) {
	t.Helper()
	close(w.stop)
	w.done.Wait()
	if _, failures := w.newResults(); len(failures) > 0 {
		t.Errorf("%d connections failed later: %q", len(failures), failures[:min(len(failures), 5)])
	}
}

func (l *lab) traceOf() map[string]bool {
	l.t.Helper()
	traces := map[string]bool{"nftables": strings.Contains(l.onNode("nft", "list", "tables"), "edgeway")}
	for _, variant := range []string{"nft", "legacy"} {
		rules := l.onNode("iptables-"+variant+"-save") + l.onNode("ip6tables-"+variant+"-save")
		traces["iptables-"+variant] = strings.Contains(rules, "KUBE-")
	}
	return traces
}

func (l *lab) onlyRulesOf(backend string) func() error {
	return func() error {
		for name, has := range l.traceOf() {
			if has != (name == backend) {
				return fmt.Errorf("the kernel has rules of %s: %v; it should have those of %s alone", name, has,
					backend)
			}
		}
		return nil
	}
}

// usesBackend returns an error unless the status reports that the given backend is in force and that no rules of
// another backend remain.
func (d *daemon) usesBackend(backend string) func() error {
	return func() error {
		s, err := d.status()
		ofOthers := func(f statusFault) bool { return f.ID == "no-endpoint" } // other tests' Services have this fault
		s.Faults = slices.DeleteFunc(s.Faults, ofOthers)
		switch {
		case err != nil:
			return err
		case s.Backend.Name != backend || s.Backend.LastSync.IsZero() || len(s.Faults) > 0:
			return fmt.Errorf("the backend is %+v, want %s, and conditions are %+v, want none", s.Backend, backend,
				s.Faults)
		}
		return nil
	}
}

// During a backend switch, the rules of either the old backend or the new backend must handle every new connection.
func TestBackendSwitchUnderLoad(t *testing.T) {
	l := newLab(t)
	d := l.newDaemon()
	d.configure(withBackend("nftables"))
	d.startReady()
	n := l.newNamespace()
	clusterIP, nodePort := n.createWeb("shop")
	empty := n.createService("empty", nil)
	dns := strings.TrimSuffix(clusterIP, ":80") + ":53"
	refusal := isRefused(l.client, at(empty.Spec.ClusterIP, 80))
	l.waitFor(longTimeout, answers(l.client, nodePort, "ep1"))
	l.waitFor(longTimeout, refusal)

	type open struct {
		*netlab.Session
		what string
	}
	var held []open
	for what, f := range map[string]struct {
		from *netlab.Host
		to   string
	}{
		"ClusterIP": {l.client, clusterIP}, "NodePort": {l.client, nodePort},
		"ClusterIP for the node": {l.node, clusterIP},
	} {
		session, failure := f.from.Open(flow(f.from, plan.TCP, f.to))
		if session == nil {
			t.Fatal(failure)
		}
		defer session.Close()
		held = append(held, open{session, what})
	}
	clients := startLoad(
		answers(l.client, clusterIP, "ep1"), answers(l.client, nodePort, "ep1"), answers(l.node, clusterIP, "ep1"),
		answers(l.ep2, clusterIP, "ep1"), answersUDP(l.client, dns, "ep1"), refusal,
	)
	defer clients.verifyEnd(t)

	for _, to := range []struct{ backend, actual string }{
		{"iptables-nft", "iptables-nft"},
		{"iptables", "iptables-nft"}, // the variant of the host's iptables command
		{"iptables-legacy", "iptables-legacy"},
		{"iptables", "iptables-nft"},
		{"nftables", "nftables"},
		{"iptables-legacy", "iptables-legacy"},
		{"iptables-nft", "iptables-nft"},
		{"nftables", "nftables"},
	} {
		d.configure(withBackend(to.backend))
		if out, errs, code := d.edgeway("reload"); code != 0 {
			t.Fatalf("edgeway reload to %s ended with %d: %s%s", to.backend, code, out, errs)
		}
		took := l.waitFor(longTimeout, d.usesBackend(to.actual))
		l.must(l.onlyRulesOf(to.actual)())
		time.Sleep(200 * time.Millisecond)
		count, failures := clients.newResults()
		t.Logf("to %s in %.0f ms: %d connections", to.backend, took.Seconds()*1000, count)
		if len(failures) > 0 || count < 100 {
			t.Errorf("to %s: %d connections of %d failed: %q", to.backend, len(failures), count,
				failures[:min(len(failures), 5)])
		}
		for _, h := range held {
			if got := h.Ask(dialTimeout); got.Server != "ep1" {
				t.Errorf("the open connection to the %s, after the switch to %s: %s", h.what, to.backend, got)
			}
		}
		mode, _, _ := strings.Cut(to.backend, "-")
		if _, body, err := d.get(metricsAddr, "/proxyMode"); err != nil || body != mode {
			t.Errorf("/proxyMode says %q (%v), want %s", body, err, mode)
		}
	}
	l.must(d.uncomplaining())
}

// The first sync of many Services takes several steps. A step must not remove the old backend's rules for a Service
// that only a later step programs.
func TestBackendSwitchWithManyServices(t *testing.T) {
	l := newLab(t)
	d := l.newDaemon()
	manifest := filepath.Join(d.dir, "many.yaml")
	l.must(os.WriteFile(manifest, []byte(manyServices(2500)), 0o600))
	configure := func(backend string) {
		d.configure(withBackend(backend) + fmt.Sprintf("[source.file]\npaths = [%q]\n", manifest))
	}
	configure("iptables-nft")
	d.startReady()
	clusterIP, nodePort := l.newNamespace().createWeb("last-of-all")
	l.waitFor(longTimeout, answers(l.client, nodePort, "ep1"))
	clients := startLoad(answers(l.client, clusterIP, "ep1"), answers(l.client, nodePort, "ep1"),
		answers(l.node, clusterIP, "ep1"))
	defer clients.verifyEnd(t)
	for _, backend := range []string{"nftables", "iptables-legacy", "nftables", "iptables-nft"} {
		configure(backend)
		if out, errs, code := d.edgeway("reload"); code != 0 {
			t.Fatalf("edgeway reload to %s ended with %d: %s%s", backend, code, out, errs)
		}
		took := l.waitFor(6*longTimeout, d.usesBackend(backend))
		time.Sleep(dialTimeout) // give connections whose SYN was dropped time to fail
		count, failures := clients.newResults()
		t.Logf("to %s in %.0f ms: %d connections", backend, took.Seconds()*1000, count)
		if len(failures) > 0 || count < 100 {
			t.Errorf("to %s: %d connections of %d failed: %q", backend, len(failures), count,
				failures[:min(len(failures), 5)])
		}
		l.must(l.onlyRulesOf(backend)())
	}
}

// manyServices returns a manifest with n Services in the namespace "a", which sorts before the namespaces of all other
// tests.
func manyServices(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata: {name: s%[1]d, namespace: a}
spec: {clusterIP: %[2]s, clusterIPs: [%[2]s], ipFamilies: [IPv4], ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s%[1]d, namespace: a, labels: {kubernetes.io/service-name: s%[1]d}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [10.244.2.12]}]
`, i, netip.AddrFrom4([4]byte{10, 0, byte(100 + i/250), byte(1 + i%250)}))
	}
	return b.String()
}

func (d *daemon) uncomplaining() error {
	log, err := os.ReadFile(d.logFile())
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "level=WARN") || strings.Contains(line, "level=ERROR") {
			return errors.New(line)
		}
	}
	return nil
}

// When the daemon starts, it must remove other backends' rules. Other backends' rules exist if the configuration
// changed while the daemon was stopped, or if the daemon exited during a switch.
func TestStartRemovesRulesOfOtherBackend(t *testing.T) {
	l := newLab(t)
	d := l.newDaemon()
	n := l.newNamespace()
	clusterIP, _ := n.createWeb("shop")
	for _, backend := range []string{"nftables", "iptables-legacy", "iptables-nft", "nftables"} {
		d.configure(withBackend(backend))
		d.startReady()
		l.must(answers(l.client, clusterIP, "ep1")())
		l.waitFor(longTimeout, l.onlyRulesOf(backend))
		d.kill()
		l.must(answers(l.client, clusterIP, "ep1")())
	}
}

// If the daemon cannot remove another backend's rules, the status must name these rules. The daemon must retry until it
// has removed the other backend's rules.
func TestUnremovableRulesOfOtherBackend(t *testing.T) {
	l := newLab(t)
	d := l.newDaemon()
	lock, err := os.Create(filepath.Join(d.dir, "xtables.lock")) // all tests share the host's own lock
	l.must(err)
	defer lock.Close()
	d.env = []string{"XTABLES_LOCKFILE=" + lock.Name()}
	d.configure(withBackend("iptables-legacy"))
	d.startReady()
	clusterIP, _ := l.newNamespace().createWeb("shop")
	l.waitFor(longTimeout, answers(l.client, clusterIP, "ep1"))
	l.must(syscall.Flock(int(lock.Fd()), syscall.LOCK_EX)) // a hung program would hold the lock in the same way
	d.configure(withBackend("nftables"))
	d.edgeway("reload")
	l.waitFor(longTimeout, d.logged("level=ERROR", "cannot remove an unused component's rules", "iptables-legacy"))
	l.waitFor(longTimeout, d.statusPrints("leftovers", "iptables-legacy"))
	l.must(d.healthy())
	l.must(answers(l.client, clusterIP, "ep1")())
	l.must(syscall.Flock(int(lock.Fd()), syscall.LOCK_UN))
	l.waitFor(longTimeout, d.usesBackend("nftables"))
	l.must(l.onlyRulesOf("nftables")())
	l.must(answers(l.client, clusterIP, "ep1")())
}

func TestIPTablesMetrics(t *testing.T) {
	l := newLab(t)
	d := l.newDaemon()
	d.configure(withBackend("iptables-legacy"))
	d.startReady()
	n := l.newNamespace()
	clusterIP, _ := n.createWeb("shop")
	l.waitFor(longTimeout, answers(l.client, clusterIP, "ep1"))
	n.setEndpoints("shop", ep2Addr)
	l.waitFor(longTimeout, answers(l.client, clusterIP, "ep2"))
	for _, m := range []struct {
		line  string
		least float64
	}{
		{`kubeproxy_sync_full_proxy_rules_duration_seconds_count{ip_family="IPv4"}`, 1},
		{`kubeproxy_sync_partial_proxy_rules_duration_seconds_count{ip_family="IPv4"}`, 1},
		{`kubeproxy_sync_proxy_rules_iptables_total{ip_family="IPv4",table="nat"}`, 5},
		{`kubeproxy_sync_proxy_rules_iptables_total{ip_family="IPv6",table="filter"}`, 1},
		{`kubeproxy_sync_proxy_rules_iptables_last{ip_family="IPv4",table="nat"}`, 1},
		{`kubeproxy_sync_proxy_rules_iptables_restore_failures_total{ip_family="IPv4"}`, 0},
		{`kubeproxy_sync_proxy_rules_iptables_partial_restore_failures_total{ip_family="IPv6"}`, 0},
		{`edgeway_iptables_lock_acquisitions_total{ip_family="IPv4"}`, 2},
		{`edgeway_iptables_lock_wait_seconds_total{ip_family="IPv4"}`, 0},
	} {
		l.waitFor(longTimeout, d.metricAtLeast(m.line, m.least))
	}
}
