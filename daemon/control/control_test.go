package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func addrPorts(list ...string) []plan.Endpoint {
	var out []plan.Endpoint
	for _, a := range list {
		out = append(out, plan.Endpoint{Addr: netip.MustParseAddrPort(a)})
	}
	return out
}

// testPlan returns a plan with the Services default/web and default/idle. default/web has IPv4 and IPv6 addresses, a
// ClusterIP, a NodePort with the policy Local, and a load-balancer address with a source range. default/idle has no
// endpoints.
func testPlan() *plan.Plan {
	forward := func(pool plan.Pool, snat bool) plan.Route { return plan.Route{Pool: pool, SNAT: snat} }
	all := func(r plan.Route) [3]plan.Route { return [3]plan.Route{r, r, r} }
	local := [3]plan.Route{
		forward(plan.ClusterPool, false), forward(plan.ClusterPool, true),
		forward(plan.LocalPool, false),
	}
	eps := addrPorts("10.1.0.1:8080", "10.2.0.1:8080")
	eps[0].Local = true
	return &plan.Plan{
		Generation: 7,
		Node: &plan.Node{
			Name:          "edge",
			HostAddrs:     []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.7")},
			NodePortAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.7")},
			LoopbackAddrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")},
			PodInterfaces: []string{"cni0"},
			ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")},
		},
		Services: []*plan.ServicePort{
			{
				Name:      plan.ServicePortName{Namespace: "default", Name: "idle", Protocol: plan.UDP},
				Family:    plan.IPv4,
				Frontends: []plan.Frontend{{Addr: netip.MustParseAddr("10.96.0.2"), Port: 53, Routes: all(plan.Route{Verdict: plan.Reject})}},
			},
			{
				Name:     plan.ServicePortName{Namespace: "default", Name: "web", Port: "http", Protocol: plan.TCP},
				Family:   plan.IPv4,
				Affinity: 3 * time.Hour,
				Frontends: []plan.Frontend{
					{Kind: plan.ClusterIP, Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Routes: all(forward(plan.ClusterPool, false))},
					{Kind: plan.LoadBalancerIP, Addr: netip.MustParseAddr("203.0.113.1"), Port: 80, Routes: local, AllowFrom: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}},
					{Kind: plan.NodePort, Port: 30080, Routes: local},
				},
				Pools: [2][]plan.Endpoint{eps, eps[:1]},
			},
			{
				Name:      plan.ServicePortName{Namespace: "default", Name: "web", Port: "http", Protocol: plan.TCP},
				Family:    plan.IPv6,
				Frontends: []plan.Frontend{{Addr: netip.MustParseAddr("fd00::1"), Port: 80, Routes: all(plan.Route{Verdict: plan.Reject})}},
			},
		},
		HealthChecks: []*plan.HealthCheck{{Namespace: "default", Name: "web", Port: 31000, LocalReady: 1}},
	}
}

func testState() pipeline.State {
	p := testPlan()
	return pipeline.State{
		Snapshot: &tracker.Snapshot{Problems: []fault.Fault{
			{Object: fault.Object{Kind: "Service", Namespace: "default", Name: "web"}, Field: "spec.ports[1].port", Message: "0 is no port"},
			{Object: fault.Object{Kind: "Service", Namespace: "default", Name: "webber"}, Message: "has no ports"},
		}},
		Plan: p, AppliedPlan: p, Backend: pipeline.StageState{Name: "nftables"},
	}
}

type daemon struct {
	Options
	state     pipeline.State
	reloadErr error
}

func noPlace(source.Key) string              { return "" }
func noneDead() *endpointcheck.DeadEndpoints { return nil }

func noneCounted() map[proxiers.Frontends]uint64 { return nil }

func start(t *testing.T, d *daemon) (c *Client, stop func()) {
	t.Helper()
	if d.Socket == "" {
		d.Socket = filepath.Join(t.TempDir(), "run", "edgeway.sock")
	}
	d.Logger = slog.New(slog.DiscardHandler)
	d.State = func() pipeline.State { return d.state }
	d.Status = func() Status {
		s := NewStatus(d.state, health.Report{Healthy: true})
		s.Version = "1.2.3"
		return s
	}
	out := d.DescribeDead
	if d.Lookups = testLookups(); out != nil {
		d.DescribeDead = out
	}
	d.Position, d.DeadEndpoints, d.Connections = noPlace, noneDead, noneCounted
	d.Reload = func(context.Context) error { return d.reloadErr }
	s, err := Listen(d.Options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	return NewClient(d.Socket), stop
}

func TestClientAndServerAgree(t *testing.T) {
	d := &daemon{state: testState()}
	c, stop := start(t, d)
	defer stop()
	ctx := t.Context()
	if s, err := c.Status(ctx); err != nil || s.Version != "1.2.3" || s.Backend.Name != "nftables" ||
		s.PID != os.Getpid() || s.Problems.Total != 2 {
		t.Errorf("Status: %+v %v", s, err)
	}
	if p, err := c.Plan(ctx, ""); err != nil || len(p.Services) != 3 || !p.InForce || p.Generation != 7 {
		t.Errorf("Plan: %+v %v", p, err)
	}
	if p, err := c.Plan(ctx, "default/web"); err != nil || len(p.Services) != 2 || len(p.HealthChecks) != 1 ||
		len(p.Problems) != 1 {
		t.Errorf("Plan of default/web: %+v %v", p, err)
	}
	if p, err := c.Plan(ctx, "default/webber"); err != nil || len(p.Services) != 0 || len(p.Problems) != 1 {
		t.Errorf("Plan of a Service that is left out: %+v %v", p, err)
	}
	for _, name := range []string{"default/none", "web"} {
		if _, err := c.Plan(ctx, name); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("Plan of %s: error %v", name, err)
		}
	}
	if e, err := c.Explain(ctx, "192.0.2.99", "192.0.2.7:30080", ""); err != nil || e.Verdict != "forward" ||
		!e.InForce {
		t.Errorf("Explain: %+v %v", e, err)
	}
	if err := c.Reload(ctx); err != nil {
		t.Errorf("Reload: %v", err)
	}
	d.reloadErr = errors.New("edgeway.toml:3: no such key")
	if err := c.Reload(ctx); err == nil || err.Error() != d.reloadErr.Error() {
		t.Errorf("Reload of a bad configuration: %v", err)
	}
	if list, err := c.Services(ctx, ""); err != nil || len(list.Items) != 2 ||
		list.Items[1].FullName() != "default/web" {
		t.Errorf("Services: %+v %v", list, err)
	}
}

func TestPlanBeforeFirstSyncIsNotInForce(t *testing.T) {
	d := &daemon{}
	c, stop := start(t, d)
	defer stop()
	if _, err := c.Plan(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "no plan yet") {
		t.Errorf("no plan: %v", err)
	}
	d.state.Plan = testPlan()
	if p, err := c.Plan(t.Context(), ""); err != nil || p.InForce {
		t.Errorf("a plan that is not applied: in force %v, %v", p.InForce, err)
	}
}

func TestClientWithoutDaemon(t *testing.T) {
	d := &daemon{}
	c, stop := start(t, d)
	stop()
	if _, err := os.Stat(d.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("no socket: %v", err)
	}
	stale(t, d.Socket)
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a dead daemon's socket: %v", err)
	}
}

func stale(t *testing.T, path string) {
	t.Helper()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
}

func TestListenReplacesStaleSocketOnly(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "edgeway.sock")
	stale(t, path)
	d := &daemon{Options: Options{Socket: path}}
	c, stop := start(t, d)
	if _, err := Listen(d.Options); !errors.Is(err, ErrRunning) {
		t.Errorf("a second daemon: %v", err)
	}
	if _, err := c.Status(t.Context()); err != nil {
		t.Errorf("the first daemon after a second one tried: %v", err)
	}
	stop()
	_, stop = start(t, d) // a reload binds the socket again in the same process
	stop()

	other, err := net.Listen("unix", path) // this listener does not acquire the lock
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, err := Listen(d.Options); !errors.Is(err, ErrRunning) {
		t.Errorf("a socket that answers: %v", err)
	}
}

// A suspended or hung daemon does not respond, but still holds its lock.
func TestLockDetectsHungDaemon(t *testing.T) {
	path := filepath.Join(t.TempDir(), "edgeway.sock")
	release, err := LockOut(path)
	if err != nil {
		t.Fatalf("before the first start: %v", err)
	}
	release()
	if _, err := os.Stat(path + lockSuffix); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("LockOut left a lock file: %v", err)
	}
	silent, err := Listen(Options{Socket: path})
	if err != nil {
		t.Fatal(err)
	}
	pid := fmt.Sprintf("process %d", os.Getpid())
	if _, err := LockOut(path); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), pid) {
		t.Errorf("beside a silent daemon: %v", err)
	}
	if err := silent.Close(); err != nil {
		t.Fatal(err)
	}
	if release, err = LockOut(path); err != nil {
		t.Fatalf("after its end: %v", err)
	}
	if _, err := Listen(Options{Socket: path}); !errors.Is(err, ErrRunning) {
		t.Errorf("a daemon starts while it is locked out: %v", err)
	}
	release()
}

func TestSocketModeIgnoresUmask(t *testing.T) {
	old := unix.Umask(0)
	defer unix.Umask(old)
	d := &daemon{}
	_, stop := start(t, d)
	defer stop()
	info, err := os.Stat(d.Socket)
	if err != nil || info.Mode().Perm() != 0o660 || info.Mode().Type() != os.ModeSocket {
		t.Errorf("socket: %v %v", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(d.Socket))
	if err != nil || len(entries) != 2 {
		t.Errorf("beside the socket is more than the lock: %v %v", entries, err)
	}
}

func TestServerAnswersAfterPanic(t *testing.T) {
	var log bytes.Buffer
	panics := true
	s := newServer(Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), State: func() pipeline.State {
		if panics {
			panic("a bug in the plan")
		}
		return testState()
	}}, nil)
	for _, want := range []int{http.StatusUnprocessableEntity, http.StatusOK} {
		w := httptest.NewRecorder()
		s.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/v1/plan", nil))
		if w.Code != want || strings.Contains(w.Body.String(), "a bug in the plan") != panics {
			t.Errorf("code %d, want %d: %.200s", w.Code, want, w.Body)
		}
		panics = false
	}
	if !strings.Contains(log.String(), "control_test.go") { // the stack
		t.Errorf("log %s", log.String())
	}
}

func TestOnlyRootAndOwnerMayReload(t *testing.T) {
	reloads := 0
	s := newServer(Options{Reload: func(context.Context) error { reloads++; return nil }}, nil)
	for _, peer := range []any{nil, uint32(4711), uint32(0), uint32(os.Geteuid())} {
		allowed := peer != nil && peer != uint32(4711)
		r := httptest.NewRequest(http.MethodPost, "/v1/reload", nil)
		if peer != nil {
			r = r.WithContext(context.WithValue(r.Context(), peerKey{}, peer))
		}
		w := httptest.NewRecorder()
		before := reloads
		s.handler().ServeHTTP(w, r)
		if done := reloads > before; done != allowed ||
			strings.Contains(w.Body.String(), "run the command as root") == allowed {
			t.Errorf("user %v: reloaded %t, told %s", peer, done, w.Body)
		}
	}
}
