package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

const fileAddr = "10.99.0.1"

// checkedManifest defines a Service with the endpoints ep1 and ep2, and with the ports that namespace.createService
// uses.
const checkedManifest = `apiVersion: v1
kind: Service
metadata: {name: shop, namespace: manifests}
spec:
  clusterIP: ` + fileAddr + `
  clusterIPs: [` + fileAddr + `]
  ipFamilies: [IPv4]
  ports: [{name: web, port: 80}, {name: dns, port: 53, protocol: UDP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop, namespace: manifests, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{name: web, port: 8080}, {name: dns, port: 8080, protocol: UDP}]
endpoints: [{addresses: [` + ep1Addr + `]}, {addresses: [` + ep2Addr + `]}]
`

// resetRules and dropRules simulate a dead endpoint. With resetRules, the endpoint's host resets connections, as if the
// server had exited. With dropRules, the endpoint's host no longer responds.
const (
	resetRules = "tcp dport 8080 reject with tcp reset"
	dropRules  = "drop"
)

func (l *lab) kill(h *netlab.Host, how string) {
	l.t.Helper()
	l.nft(h, "add table inet dead; add chain inet dead input { type filter hook input priority 0; }; add rule inet dead input "+how)
}

func (l *lab) revive(h *netlab.Host) {
	l.t.Helper()
	l.nft(h, "delete table inet dead")
}

func (l *lab) nft(h *netlab.Host, commands string) string {
	l.t.Helper()
	out, err := h.Command(l.t.Context(), "nft", commands).CombinedOutput()
	if err != nil {
		l.t.Fatalf("nft %s on %s: %v\n%s", commands, h.Name, err, out)
	}
	return string(out)
}

type tries struct {
	stop chan struct{}
	done sync.WaitGroup

	mu     sync.Mutex
	list   []try
	served map[string]time.Time // the start time of the latest connection to each endpoint
}

type try struct {
	began time.Time
	err   error
}

func (l *lab) tryAllTheTime(addr string, from ...*netlab.Host) *tries {
	r := &tries{stop: make(chan struct{}), served: map[string]time.Time{}}
	for _, h := range from {
		f := flow(h, plan.TCP, addr)
		r.done.Go(func() {
			for {
				select {
				case <-r.stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
				t := try{began: time.Now()}
				got := h.Connect(f)
				if got.Result != netlab.Served {
					t.err = fmt.Errorf("from %s: %s", h.Name, got)
				}
				r.mu.Lock()
				r.list = append(r.list, t)
				r.served[got.Server] = t.began
				r.mu.Unlock()
			}
		})
	}
	l.t.Cleanup(func() {
		close(r.stop)
		r.done.Wait()
	})
	return r
}

// summarySince returns the number of connections since the given time, the errors of the failed connections, and the
// start time of the last failed connection.
func (r *tries) summarySince(from time.Time) (count int, failed []error, last time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.list {
		if t.began.Before(from) {
			continue
		}
		count++
		if t.err != nil {
			failed, last = append(failed, t.err), t.began
		}
	}
	return count, failed, last
}

// reaches returns an error unless connections have reached every named endpoint since the given time.
func (r *tries) reaches(from time.Time, names ...string) func() error {
	return func() error {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, name := range names {
			if r.served[name].Before(from) {
				return fmt.Errorf("no new connection reaches %s", name)
			}
		}
		return nil
	}
}

func (l *lab) sticky(addr, name string) *netlab.Session {
	l.t.Helper()
	for range 100 {
		s, failure := l.client.Open(flow(l.client, plan.UDP, addr))
		if s == nil {
			l.t.Fatal(failure)
		}
		if s.Ask(dialTimeout).Server == name {
			return s
		}
		s.Close()
	}
	l.t.Fatalf("no datagram to %s reaches %s", addr, name)
	return nil
}

// With the default settings, Edgeway must stop using a dead endpoint within three seconds. No new connection may fail
// more than three seconds after an endpoint has died, not even during a reload. When an endpoint recovers, Edgeway must
// use it again.
func TestDeadEndpointsGetNoConnections(t *testing.T) {
	for _, backend := range []string{"nftables", "iptables-nft"} {
		for _, source := range []string{"file", "kube"} {
			t.Run(backend+", "+source, func(t *testing.T) {
				t.Parallel()
				testDeadEndpoints(t, backend, source)
			})
		}
	}
}

func testDeadEndpoints(t *testing.T, backend, source string) {
	l := newLab(t)
	d := l.newDaemon()
	manifest := filepath.Join(d.dir, "shop.yaml")
	l.must(os.WriteFile(manifest, []byte(checkedManifest), 0o600))
	d.configure(withBackend(backend) + fmt.Sprintf("[source.file]\npaths = [%q]\n[checks.tcp]\nsources = [%q]\n",
		manifest, source))
	n := l.newNamespace()
	d.watchOnly(n)
	l.nft(l.node, "add table inet own; add counter inet own checks; add chain inet own output { type filter hook output priority 0; }; "+
		"add rule inet own output tcp dport 8080 tcp flags syn meta mark and 0x1000 != 0 counter name checks")
	d.startReady()
	svc := n.createService("shop", nil)
	n.setEndpoints("shop", ep1Addr, ep2Addr)
	checked, other, name := fileAddr, svc.Spec.ClusterIP, "manifests/shop"
	if source == "kube" {
		checked, other, name = other, checked, n.name+"/shop"
	}
	web, dns := at(checked, 80), at(checked, 53)
	l.waitFor(longTimeout, answers(l.client, web, "ep1"))
	l.waitFor(longTimeout, answers(l.client, web, "ep2"))
	l.waitFor(longTimeout, d.metricAtLeast(`edgeway_endpoint_checks_endpoints{state="alive"}`, 2))
	all := l.tryAllTheTime(web, l.client, l.node)
	for _, how := range []string{resetRules, dropRules} {
		stuck := l.sticky(dns, "ep1")
		limit := l.extendLimit(3 * time.Second)
		died := time.Now()
		l.kill(l.ep1, how)
		l.waitFor(longTimeout, d.commandPrints(
			[]string{"status"}, "endpoint-checks", "2 endpoints checked, 1 ", ep1Addr+":8080 "))
		time.Sleep(time.Until(died.Add(limit)))
		if got := stuck.Ask(dialTimeout); got.Server != "ep2" {
			t.Errorf("a client of UDP, %s: %s, want served by ep2", how, got)
		}
		stuck.Close()
		l.must(d.commandPrints([]string{"explain", "host", web}, "dead ", ep1Addr+":8080 does not answer", ep2Addr)())
		l.must(d.commandPrints([]string{"services", name}, "dead endpoints", ep1Addr+":8080 does not answer")())
		l.must(d.metricAtLeast(`edgeway_endpoint_checks_endpoints{state="dead"}`, 1)())
		l.waitFor(longTimeout, isUnanswered(l.client, at(other, 80))) // the daemon does not check this Service
		if out, errs, code := d.edgeway("reload"); code != 0 {
			t.Fatalf("edgeway reload ended with %d: %s%s", code, out, errs)
		}
		time.Sleep(3 * time.Second)
		l.waitFor(longTimeout, func() error {
			if count, _, _ := all.summarySince(died.Add(limit)); count < 50 {
				return fmt.Errorf("only %d connections began", count)
			}
			return nil
		})
		count, failed, _ := all.summarySince(died.Add(limit))
		if len(failed) > 0 {
			t.Errorf("%s: %d of %d connections failed that began more than %s after it: %q", how, len(failed), count,
				limit, failed[:min(len(failed), 5)])
		}
		_, before, last := all.summarySince(died)
		if len(before) == 0 {
			t.Errorf("%s: no connection failed, so that this test sees nothing", how)
		}
		l.must(d.healthy())
		back := time.Now()
		l.revive(l.ep1)
		took := l.waitFor(longTimeout, all.reaches(back, "ep1", "ep2"))
		t.Logf("%s: the last connection that failed began %.2f s after it, then %d did not; in use again after %.2f s",
			how, last.Sub(died).Seconds(), count, took.Seconds())
		l.waitFor(longTimeout, d.metricAtLeast(`edgeway_endpoint_checks_endpoints{state="alive"}`, 2))
	}
	l.must(d.logged("level=WARN", "endpoint does not answer", ep1Addr+":8080")())
	l.must(d.logged("level=INFO", "endpoint answers again", ep1Addr+":8080")())

	if out := l.nft(l.node, "list counter inet own checks"); strings.Contains(out, "packets 0 ") {
		t.Errorf("the checks do not have the mark that keeps rules off them: %s", out)
	}

	l.kill(l.ep1, resetRules)
	l.kill(l.ep2, resetRules)
	l.waitFor(longTimeout, d.commandPrints([]string{"status"}, "problem   services-dead", "2 endpoints checked, 2 "))
	l.must(d.commandPrints(
		[]string{"services", name}, ep1Addr+":8080 does not answer", ep2Addr+":8080 does not answer")())
	l.mustStay(2*time.Second, isReset(l.client, web)) // Edgeway keeps all endpoints, and they reset the connections
	l.must(d.commandPrints([]string{"explain", "host", web}, "dead ", ep1Addr+":8080 does not answer",
		"the endpoint stays in use if no other endpoint responds")())
}

// commandPrints returns an error unless a command prints all of the words. The command may have any exit code.
func (d *daemon) commandPrints(args []string, words ...string) func() error {
	return func() error {
		out, errs, _ := d.edgeway(args...)
		for _, w := range words {
			if !strings.Contains(out, w) {
				return fmt.Errorf("edgeway %v does not say %q:\n%s%s", args, w, out, errs)
			}
		}
		return nil
	}
}

func TestEndpointChecksAreOffByDefault(t *testing.T) {
	t.Parallel()
	l, d := running(t)
	_, _, nodePort := d.shop()
	rules := "add table inet seen; add counter inet seen opened; add chain inet seen input { type filter hook input priority 0; }; " +
		"add rule inet seen input tcp dport 8080 tcp flags syn counter name opened"
	l.nft(l.ep1, rules)
	count := func() string { return l.nft(l.ep1, "list counter inet seen opened") }
	l.mustStay(3*time.Second, func() error {
		if out := count(); !strings.Contains(out, "packets 0 ") {
			return errors.New(out)
		}
		return nil
	})
	if err := d.metricAtLeast(`edgeway_endpoint_checks_endpoints{state="alive"}`, 0)(); err == nil {
		t.Error("there are metrics of checks that nobody asked for")
	}
	l.must(answers(l.client, at(nodeAddr, int(netip.MustParseAddrPort(nodePort).Port())), "ep1")())
	if out := count(); strings.Contains(out, "packets 0 ") {
		t.Errorf("the counter counts nothing: %s", out)
	}
}
