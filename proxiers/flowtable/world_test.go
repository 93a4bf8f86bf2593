package flowtable

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
	"edgeway/test/plantest"
)

func TestMain(m *testing.M) { os.Exit(netlab.Isolate(m)) }

// needFlowtable skips a test if the kernel does not support flowtables. The test VMs' kernels support flowtables.
func needFlowtable(t *testing.T) {
	t.Helper()
	err := Component(nil).Probe(t.Context())
	if errors.Is(err, proxiers.ErrUnsupported) && os.Getenv("FASTPATH_MUST_RUN") == "" {
		t.Skipf("the kernel does not support flowtables (test/vm/jobs runs this test): %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// world consists of a client, two endpoints, and a router that runs a backend and the follower.
type world struct {
	*testing.T
	lab       *netlab.Lab
	client    *netlab.Host
	endpoints [2]*netlab.Host
	backend   proxiers.Component
	env       proxiers.Env
	wake      chan struct{}
	stop      func()
	mu        sync.Mutex // mu is locked while a proxier runs
	stages    []proxiers.Proxier
	plan      *plan.Plan
	drifted   atomic.Bool
	// maintainCalls counts the calls to Maintain, and maintainTime is the total duration of these calls.
	maintainCalls atomic.Int32
	maintainTime  time.Duration
}

const (
	servicePort  = 80
	endpointPort = 8080
	nodePort     = 30080
)

var (
	service4 = plantest.Addr("10.96.0.10")
	service6 = plantest.Addr("fd00:10:96::10")
)

func newWorld(t *testing.T, backend proxiers.Component) *world {
	t.Helper()
	needFlowtable(t)
	w := &world{T: t, lab: netlab.New(t, netlab.Options{InPlace: true}), backend: backend, wake: make(chan struct{}, 1)}
	w.client = w.lab.Host("client", plantest.Addr("198.51.100.7"), plantest.Addr("2001:db8:51::7"))
	for i, name := range []string{"one", "two"} {
		w.endpoints[i] = w.newEndpoint(name, i+1)
	}
	w.env = proxiers.Env{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Families: both, MasqueradeBit: 14,
		Drift: func(string) { w.drifted.Store(true); w.poke() }, Wake: w.poke, Progress: func(int, int) {},
		Settings: map[string]any{"tc": true}, // the setting is for the ebpf backend
	}
	// The previous test's connections left connection-tracking entries with the same ports.
	if err := w.lab.Node.FlushConntrack(); err != nil {
		t.Fatal(err)
	}
	w.nft("add table inet watch; add counter inet watch seen; add chain inet watch forward { type filter hook forward priority -200; }; add rule inet watch forward counter name seen")
	w.start()
	t.Cleanup(func() {
		w.end()
		for _, c := range []proxiers.Component{Component(nil), backend} {
			if err := c.Cleanup(context.WithoutCancel(t.Context()), w.env); err != nil {
				t.Errorf("cleanup of %s: %v", c.Name, err)
			}
		}
		w.nft("delete table inet watch")
		if _, err := exec.Command("nft", "list", "table", "inet", tableName).Output(); err == nil {
			t.Error("the table is still there after the cleanup")
		}
	})
	return w
}

func (w *world) newEndpoint(name string, n int) *netlab.Host {
	w.Helper()
	four, six := netip.AddrFrom4([4]byte{10, 244, byte(n), 7}), plantest.Addr(fmt.Sprintf("fd00:10:244:%d::7", n))
	h := w.lab.Host(name, four, six)
	for _, a := range h.Addrs {
		for _, p := range []plan.Protocol{plan.TCP, plan.UDP} {
			if _, err := h.Start(name, netip.AddrPortFrom(a, endpointPort), p); err != nil {
				w.Fatal(err)
			}
		}
	}
	return h
}

func (w *world) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *world) start() {
	w.Helper()
	for _, c := range []proxiers.Component{w.backend, Component(w.backend.Traits.SharedTables)} {
		p, err := c.New(w.Context(), w.env)
		if err != nil {
			w.Fatal(err)
		}
		w.stages = append(w.stages, p)
	}
	ended := make(chan struct{})
	var done sync.WaitGroup
	done.Go(func() { w.maintain(ended) })
	w.stop = func() { close(ended); done.Wait() }
}

func (w *world) end() {
	w.Helper()
	w.stop()
	for _, p := range w.stages {
		if err := p.Close(); err != nil {
			w.Errorf("close: %v", err)
		}
	}
	w.stages = nil
}

// maintain acts as the pipeline: it runs deferred work when the work is due, and a full sync after drift.
func (w *world) maintain(ended chan struct{}) {
	for {
		w.mu.Lock()
		next := time.Hour
		for _, p := range w.stages {
			t, ok := p.(proxiers.Maintainer)
			if !ok {
				continue
			}
			due := t.Due()
			if !due.IsZero() && !due.After(time.Now()) {
				w.maintainCalls.Add(1)
				start := time.Now()
				if err := t.Maintain(context.Background()); err != nil {
					w.Errorf("later work: %v", err)
				}
				w.maintainTime += time.Since(start)
				due = t.Due()
			}
			if !due.IsZero() {
				next = min(next, max(time.Until(due), 0))
			}
		}
		if w.plan != nil && w.drifted.Swap(false) {
			w.sync(proxiers.NewChange(nil, w.plan))
		}
		w.mu.Unlock()
		select {
		case <-ended:
			return
		case <-w.wake:
		case <-time.After(next):
		}
	}
}

// sync applies a change to all stages. The caller must hold mu.
func (w *world) sync(change proxiers.Change) {
	w.Helper()
	for _, p := range w.stages {
		if err := p.Apply(context.Background(), change); err != nil {
			w.Errorf("apply: %v", err)
		}
	}
	w.plan = change.Next
	w.poke()
}

// apply runs a full sync on its first call and partial syncs on later calls.
func (w *world) apply(list ...*plan.ServicePort) {
	w.Helper()
	node := plantest.Node()
	node.NodePortAddrs = []netip.Addr{netlab.NodeAddr4, netlab.NodeAddr6}
	node.HostAddrs, node.PodSources = w.lab.Node.Addrs, nil
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.plan != nil {
		node = w.plan.Node
	}
	w.sync(proxiers.NewChange(w.plan, plantest.Plan(node, list...)))
}

// webService returns the ServicePorts of a Service that uses the fast path, for TCP and UDP in both families.
func (w *world) webService(endpoints int, changes ...func(*plan.ServicePort)) (list []*plan.ServicePort) {
	outside := [3]plan.Route{{SNAT: true}, {SNAT: true}, {SNAT: true}}
	for _, f := range both {
		for _, p := range []plan.Protocol{plan.TCP, plan.UDP} {
			svc := plantest.Service("web", []plan.Frontend{
				{Kind: plan.ClusterIP, Addr: service4, Port: servicePort},
				{Kind: plan.LoadBalancerIP, Addr: plantest.Addr("203.0.113.3"), Port: servicePort},
				{Kind: plan.NodePort, Port: nodePort, Routes: outside},
			})
			svc.Name.Protocol, svc.Family, svc.LongLived = p, f, true
			if f == plan.IPv6 {
				svc.Frontends[0].Addr, svc.Frontends[1].Addr = service6, plantest.Addr("2001:db8:113::3")
			}
			for _, h := range w.endpoints[:endpoints] {
				addr := netip.AddrPortFrom(h.Addr(svc.Frontends[0].Addr), endpointPort)
				svc.Pools[0] = append(svc.Pools[0], plan.Endpoint{Addr: addr})
			}
			svc.Serving = svc.Pools[0]
			for _, c := range changes {
				c(svc)
			}
			list = append(list, svc)
		}
	}
	return list
}

const patience = 20 * time.Second

// open opens a connection and waits for one response.
func (w *world) open(p plan.Protocol, to netip.Addr, port uint16) *netlab.Session {
	w.Helper()
	s, o := w.client.Open(netlab.Flow{
		Protocol: p, From: w.client.Addr(to), To: netip.AddrPortFrom(to, port),
		Wait: patience,
	})
	if s == nil {
		w.Fatalf("%s connection to %s:%d: %s", p, to, port, o)
	}
	w.Cleanup(s.Close)
	w.ask(s)
	return s
}

func (w *world) ask(s *netlab.Session) {
	w.Helper()
	if o := s.Ask(patience); o.Result != netlab.Served {
		w.Fatalf("a question on an open connection: %s", o)
	}
}

// numRequests is the number of requests that countRulePackets sends on a connection.
const numRequests = 20

// countRulePackets sends requests on a connection and returns how many packets traversed the rules. A request and its
// response together consist of at least two packets.
func (w *world) countRulePackets(s *netlab.Session) int {
	w.Helper()
	before := w.seen()
	for range numRequests {
		w.ask(s)
	}
	return w.seen() - before
}

var packets = regexp.MustCompile(`packets (\d+)`)

func (w *world) seen() int {
	w.Helper()
	m := packets.FindStringSubmatch(w.nft("list counter inet watch seen"))
	if m == nil {
		w.Fatal("no counter")
	}
	n, _ := strconv.Atoi(m[1])
	return n
}

// wantOffloaded fails the test unless the kernel offloads the connection before a timeout.
func (w *world) wantOffloaded(what string, s *netlab.Session) {
	w.Helper()
	n := 0
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		if n = w.countRulePackets(s); n < numRequests/2 {
			return
		}
	}
	w.Errorf("%s: of %d questions and answers the rules saw %d packets: it is not on the fast path\n%s\n%s", what,
		numRequests, n, w.nft("list table inet "+tableName), w.conntrack())
}

// wantRules fails the test unless all packets of a connection traverse the rules.
func (w *world) wantRules(what string, s *netlab.Session) {
	w.Helper()
	if n := w.countRulePackets(s); n < 2*numRequests {
		w.Errorf("%s: of %d questions and answers the rules saw %d packets only\n%s",
			what, numRequests, n, w.conntrack())
	}
}

func (w *world) conntrack() string {
	out, err := exec.Command("conntrack", "-L").CombinedOutput()
	if err != nil {
		return fmt.Sprintf("conntrack: %v", err)
	}
	return string(out)
}

func (w *world) nft(commands string) string {
	w.Helper()
	return w.run(strings.ReplaceAll(commands, "; add", "\nadd"), "nft", "-f", "-")
}

func (w *world) run(stdin, name string, args ...string) string {
	w.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, stdin, out)
	}
	return string(out)
}
