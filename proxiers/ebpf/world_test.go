package ebpf

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
	"edgeway/test/plantest"
)

func TestMain(m *testing.M) { os.Exit(netlab.Isolate(m)) }

var both = []plan.Family{plan.IPv4, plan.IPv6}

const (
	servicePort  = 80
	endpointPort = 8080
	patience     = 20 * time.Second
)

// world consists of a client, two endpoints, and a host that runs the backend. The endpoints are pods on other hosts.
// The client is not a pod.
type world struct {
	*testing.T
	lab       *netlab.Lab
	endpoints []*netlab.Host
	other     *netlab.Host
	dir       string
	env       proxiers.Env
	proxier   *proxier
	plan      *plan.Plan
	drift     atomic.Pointer[string]
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{
		T: t, lab: netlab.New(t, netlab.Options{InPlace: true}),
		dir: filepath.Join(os.TempDir(), fmt.Sprintf("edgeway-bpf-test-%d", os.Getpid())),
	}
	for i, name := range []string{"one", "two"} {
		h := w.lab.Host(name, netip.AddrFrom4([4]byte{10, 244, byte(i + 1), 7}),
			plantest.Addr(fmt.Sprintf("fd00:10:244:%d::7", i+1)))
		for _, a := range h.Addrs {
			if err := h.Serve(name, netip.AddrPortFrom(a, endpointPort), plan.TCP, plan.UDP); err != nil {
				t.Fatal(err)
			}
		}
		w.endpoints = append(w.endpoints, h)
	}
	w.other = w.lab.Host("other", plantest.Addr("10.244.9.7"), plantest.Addr("fd00:10:244:9::7"))
	// Like the daemon, the test runs the probe first, so that the kernel loads the modules that the rules and the
	// programs need.
	if err := probeHost(t.Context(), w.dir); err != nil {
		t.Fatal(err)
	}
	w.env = silentEnv(t)
	w.env.Drift = func(why string) { w.drift.Store(&why) }
	// Remove the connection-tracking entries of previous tests, which use the same ports.
	if err := w.lab.Node.FlushConntrack(); err != nil {
		t.Fatal(err)
	}
	w.start()
	t.Cleanup(func() {
		w.stop()
		w.cleanUp()
		if _, err := os.Stat(w.dir); !os.IsNotExist(err) {
			t.Errorf("the folder of what is pinned is still there: %v", err)
		}
	})
	return w
}

func silentEnv(t *testing.T) proxiers.Env {
	return proxiers.Env{
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)), Families: both, MasqueradeBit: 14,
		Drift: func(string) {}, Wake: func() {}, Progress: func(int, int) {}, Settings: map[string]any{"tc": true},
	}
}

func emptyPlan() *plan.Plan { return plantest.Plan(plantest.Node()) }

func (w *world) start() {
	w.Helper()
	p, err := newProxier(w.dir, w.env)
	if err != nil {
		w.Fatal(err)
	}
	w.proxier, w.plan = p, nil
}

func (w *world) stop() {
	w.Helper()
	if w.proxier == nil {
		return
	}
	if err := w.proxier.Close(); err != nil {
		w.Errorf("close: %v", err)
	}
	w.proxier = nil
}

func (w *world) cleanUp() {
	w.Helper()
	if err := cleanup(context.Background(), w.dir); err != nil {
		w.Errorf("cleanup: %v", err)
	}
}

func vip(f plan.Family, n int) netip.AddrPort {
	if f == plan.IPv6 {
		return netip.AddrPortFrom(plantest.Addr(fmt.Sprintf("fd00:10:96::%d", n)), servicePort)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(n)}), servicePort)
}

// service returns the n-th Service for both families and for TCP and UDP.
func (w *world) service(n int, endpoints ...*netlab.Host) (list []*plan.ServicePort) {
	for _, f := range both {
		for _, p := range []plan.Protocol{plan.TCP, plan.UDP} {
			svc := plantest.Service(fmt.Sprint("s", n),
				[]plan.Frontend{{
					Kind: plan.ClusterIP, Addr: vip(f, n).Addr(), Port: servicePort,
					Routes: plantest.ClusterIPRoutes,
				}})
			svc.Name.Protocol, svc.Family = p, f
			for _, h := range endpoints {
				svc.Pools[0] = append(svc.Pools[0], plan.Endpoint{Addr: netip.AddrPortFrom(h.Addr(vip(f, n).Addr()),
					endpointPort)})
			}
			if len(endpoints) == 0 {
				svc.Frontends[0].Routes = [3]plan.Route{
					{Verdict: plan.Reject},
					{Verdict: plan.Reject},
					{Verdict: plan.Reject},
				}
			}
			svc.Serving = svc.Pools[0]
			list = append(list, svc)
		}
	}
	return list
}

// apply syncs the Services in list. The first call to apply after the backend starts runs a full sync.
func (w *world) apply(list ...[]*plan.ServicePort) {
	w.Helper()
	node := plantest.Node()
	node.NodePortAddrs, node.HostAddrs, node.PodSources = []netip.Addr{netlab.NodeAddr4, netlab.NodeAddr6},
		w.lab.Node.Addrs, nil
	var all []*plan.ServicePort
	for _, l := range list {
		all = append(all, l...)
	}
	if w.plan != nil {
		node = w.plan.Node
	}
	w.sync(proxiers.NewChange(w.plan, plantest.Plan(node, all...)))
}

func (w *world) syncNode(node *plan.Node, list ...[]*plan.ServicePort) {
	w.Helper()
	w.sync(proxiers.NewChange(w.plan, plantest.Plan(node, slices.Concat(list...)...)))
}

func (w *world) sync(change proxiers.Change) {
	w.Helper()
	if err := w.proxier.Apply(context.Background(), change); err != nil {
		w.Fatalf("apply: %v", err)
	}
	w.plan = change.Next
	if err := w.proxier.shortcuts.problem; err != nil {
		w.Fatalf("the shortcut is not at work: %v", err)
	}
}

// connectionCounts returns how many of the host's connections have used the shortcut so far, and how many nftables has
// forwarded.
func (w *world) connectionCounts() (sent, left uint64) {
	w.Helper()
	counts, err := w.proxier.shortcuts.counts()
	if err != nil {
		w.Fatal(err)
	}
	for c, n := range counts {
		switch counter(c) {
		case connectedTCP, connectedUDP, sentUDP:
			sent += n
		case packetsTCP:
		default:
			left += n
		}
	}
	return sent, left
}

// wantShortcut fails the test unless n connections from the host use the shortcut while do is running.
func (w *world) wantShortcut(n uint64, what string, do func()) {
	w.Helper()
	before, _ := w.connectionCounts()
	do()
	if now, _ := w.connectionCounts(); now-before != n {
		w.Errorf("%s: %d connections took the shortcut, not %d", what, now-before, n)
	}
}

func (w *world) ask(network string, to netip.AddrPort) (server string) {
	w.Helper()
	c, err := net.DialTimeout(network, to.String(), patience)
	if err != nil {
		w.Errorf("connection to %s over %s: %v", to, network, err)
		return ""
	}
	defer c.Close()
	if c.RemoteAddr().String() != to.String() {
		w.Errorf("a socket that wanted %s is told that it has %s", to, c.RemoteAddr())
	}
	server, err = answer(c)
	if err != nil {
		w.Errorf("question to %s over %s: %v", to, network, err)
	}
	return server
}

func answer(c net.Conn) (server string, err error) {
	server, _, err = conversation(c)
	return server, err
}

func conversation(c net.Conn) (server, seen string, err error) {
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", "", err
	}
	if _, err := fmt.Fprintln(c, "who?"); err != nil {
		return "", "", err
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	server, seen, _ = strings.Cut(strings.TrimSpace(line), " ")
	if peer, e := netip.ParseAddrPort(seen); e == nil {
		seen = peer.Addr().Unmap().String()
	}
	return server, seen, err
}
