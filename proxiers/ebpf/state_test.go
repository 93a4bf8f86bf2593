package ebpf

import (
	"maps"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

func (w *world) read() *mapContents {
	w.Helper()
	h, err := w.proxier.shortcuts.tables.read()
	if err != nil {
		w.Fatal(err)
	}
	return h
}

func equal(a, b *mapContents) bool {
	return maps.Equal(a.frontends, b.frontends) && maps.Equal(a.slots, b.slots) && maps.Equal(a.members, b.members) &&
		maps.Equal(a.addresses, b.addresses)
}

// While the maps' contents are unknown after a failed sync, Maintain deletes no stale sets. Due must then return the
// zero time, because a time in the past would cause a busy loop.
func TestStaleSetsAreKeptWhileStateIsUnknown(t *testing.T) {
	s := &shortcuts{known: true, stale: []staleSlots{{at: time.Now()}}}
	if s.dueTime().IsZero() {
		t.Error("a stale set is never deleted")
	}
	s.markUnknown()
	if at := s.dueTime(); !at.IsZero() {
		t.Errorf("after a failed sync there is work at %s", at)
	}
}

// A daemon restart does not change the maps, and getpeername on existing sockets still returns the Service's address.
func TestRestart(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...), w.service(2, w.endpoints[0]))
	var open []net.Conn
	for _, network := range []string{"tcp", "udp"} {
		for _, f := range both {
			c, err := net.Dial(network, vip(f, 1).String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			open = append(open, c)
		}
	}
	pc, err := net.ListenPacket("udp", "")
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	server, _, err := askFrom(pc, vip(plan.IPv4, 1))
	if err != nil {
		t.Fatal(err)
	}
	before := w.read()
	w.stop()
	w.wantServed("while nobody runs")
	w.start()
	w.apply(w.service(1, w.endpoints...), w.service(2, w.endpoints[0]))
	if !equal(before, w.read()) {
		t.Errorf("the restart changed the maps:\n%+v\n%+v", before, w.read())
	}
	for _, c := range open {
		if _, err := answer(c); err != nil {
			t.Errorf("a connection over %s of before: %v", c.RemoteAddr().Network(), err)
		}
	}
	if again, from, err := askFrom(pc, vip(plan.IPv4, 1)); again != server || from != vip(plan.IPv4, 1) {
		t.Errorf("a socket of before has %s at %s, not %s: %v", again, from, server, err)
	}
	// After a restart, the daemon applies a plan change that occurred while no daemon was running.
	w.stop()
	w.start()
	w.apply(w.service(1, w.endpoints[1]))
	if server := w.ask("tcp", vip(plan.IPv4, 1)); server != "two" {
		t.Errorf("served by %s", server)
	}
	for k, f := range w.read().frontends {
		if k.Addr == addressOf(vip(plan.IPv4, 2).Addr()) {
			t.Errorf("a Service of before is still in the maps: %+v", f)
		}
	}
}

func (w *world) wantServed(when string) {
	w.Helper()
	for _, f := range both {
		for _, network := range []string{"tcp", "udp"} {
			if w.ask(network, vip(f, 1)) == "" {
				w.Errorf("%s: not served", when)
			}
		}
	}
}

// The backend does not break connections by deleting sets too early, even if plan changes constantly replace endpoints.
func TestEndpointsAreReplacedUnderLoad(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					w.ask("tcp", vip(plan.IPv4, 1))
				}
			}
		})
	}
	for i := range 400 {
		w.apply(w.service(1, w.endpoints[i%2]))
		if due := w.proxier.Due(); !due.IsZero() && due.Before(time.Now()) {
			if err := w.proxier.Maintain(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(stop)
	wg.Wait()
	if counts, err := w.proxier.shortcuts.counts(); err != nil || counts[leftRace] > 0 {
		t.Errorf("%d connections met a set that was gone: %v", counts[leftRace], err)
	}
	time.Sleep(deleteDelay)
	if err := w.proxier.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The maps contain one endpoint for each family and protocol, and the self-test's two endpoints.
	if n := len(w.read().slots); n != 4+selfTestElements {
		t.Errorf("%d endpoints are in the maps", n)
	}
	if b := w.proxier.shortcuts.mapState; b.slots != 4+selfTestElements ||
		b.frontends != 3*4+selfTestElements || b.members != 2+selfTestElements {
		t.Errorf("the books say %d endpoints, %d frontends, %d members", b.slots, b.frontends, b.members)
	}
}

// The backend detects damage by another program at its next inspection, and a full sync repairs the damage. Until the
// repair, nftables forwards all connections.
func TestDriftIsRepaired(t *testing.T) {
	if inspectionInterval > time.Second { // a busy machine may take longer to inspect, so the limit below is generous
		t.Errorf("the backend inspects the maps every %s only", inspectionInterval)
	}
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	for name, damage := range map[string]func() error{
		"a link is detached": func() error {
			l, err := link.LoadPinnedLink(filepath.Join(w.dir, layout, linkPrefix+socketsProgConnect4), nil)
			if err != nil {
				return err
			}
			defer l.Close()
			return l.Detach()
		},
		"frontends go":    func() error { return w.proxier.shortcuts.tables.frontends.remove(keys(w.read().frontends)) },
		"the settings go": func() error { return w.proxier.shortcuts.configure(socketsSettings{}) },
	} {
		t.Run(name, func(t *testing.T) {
			w.drift.Store(nil)
			if err := damage(); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			w.wantServed("after damage")
			for w.drift.Load() == nil {
				if time.Sleep(10 * time.Millisecond); time.Since(start) > 30*time.Second {
					t.Fatal("the damage was not noticed within 30 seconds")
				}
			}
			w.sync(proxiers.NewChange(nil, w.plan))
			w.wantShortcut(4, "repaired", func() { w.wantServed("repaired") })
		})
	}
}

func keys[K comparable, V any](m map[K]V) (list []K) {
	for k := range m {
		list = append(list, k)
	}
	return list
}

// nftables forwards connections to Services that the maps have no space for.
func TestMapOverflowIsLeftToNftables(t *testing.T) {
	w := newWorld(t)
	w.proxier.shortcuts.size = size{frontends: 12, slots: 12, members: 24}
	w.apply(w.service(1, w.endpoints...), w.service(2, w.endpoints...), w.service(3, w.endpoints...),
		w.service(4, w.endpoints...))
	noRoom := 0
	for n := 1; n <= 4; n++ {
		for _, f := range both {
			if w.ask("tcp", vip(f, n)) == "" {
				t.Errorf("Service %d is not served", n)
			}
		}
	}
	for _, r := range w.proxier.shortcuts.mapState.records {
		if r.endpointsOverflow || r.frontendsOverflow {
			noRoom++
		}
	}
	if left := w.proxier.shortcuts.mapState.overflow; noRoom == 0 || noRoom == 16 || left != noRoom {
		t.Errorf("%d of 16 ServicePorts do not fit, %d were counted", noRoom, left)
	}
	// After Maintain has deleted stale sets, the maps have space for all Services.
	w.apply(w.service(4, w.endpoints...))
	time.Sleep(deleteDelay)
	if err := w.proxier.Maintain(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.sync(proxiers.NewChange(nil, w.plan))
	w.wantShortcut(1, "with room", func() { w.ask("tcp", vip(plan.IPv4, 4)) })
}

// When one of 10,000 Services changes, the backend writes only that Service's elements.
func TestManyServices(t *testing.T) {
	w := newWorld(t)
	node := plantest.Node()
	list := plantest.ManyServices(10_000, 5)
	for _, svc := range list {
		svc.Serving = svc.Pools[0]
	}
	first := plantest.Plan(node, list...)
	var begun, finished time.Duration
	step := func(change proxiers.Change) *step {
		start := time.Now()
		st := w.proxier.shortcuts.begin(change)
		begun = time.Since(start)
		start = time.Now()
		w.proxier.shortcuts.finish(st, change.Next)
		finished = time.Since(start)
		if err := w.proxier.shortcuts.problem; err != nil {
			t.Fatal(err)
		}
		return st
	}
	step(proxiers.NewChange(nil, plantest.Plan(node))) // the first sync also loads the programs
	step(proxiers.NewChange(nil, first))
	t.Logf("10,000 Services of 5 endpoints: %v before nftables, %v after", begun, finished)
	step(proxiers.NewChange(nil, first))
	t.Logf("compared: %v before nftables, %v after", begun, finished)
	next := plantest.WithEndpoints(first, 5000, plantest.Endpoint("10.1.2.3:8080"))
	st := step(proxiers.NewChange(first, next))
	t.Logf("one change: %v before nftables, %v after", begun, finished)
	if n := len(origins()) * len(next.Services[5000].Frontends); len(st.nextFrontends) != n ||
		len(st.newSlots.keys) != 1 || len(st.staleSlots) != 5 {
		t.Errorf("%d frontends, %d endpoints, %d old ones",
			len(st.nextFrontends), len(st.newSlots.keys), len(st.staleSlots))
	}
}

// The committed object files declare their licence and contain a program for each hook.
func TestObjectFile(t *testing.T) {
	spec, err := loadSockets()
	if err != nil {
		t.Fatal(err)
	}
	packets, err := loadPackets()
	if err != nil {
		t.Fatal(err)
	}
	for _, list := range []map[string]*ebpf.ProgramSpec{spec.Programs, packets.Programs} {
		for name, p := range list {
			if p.License != "GPL" {
				t.Errorf("%s has the licence %q", name, p.License)
			}
		}
	}
	if len(spec.Programs) != len(hooks()) {
		t.Errorf("%d programs and %d hooks", len(spec.Programs), len(hooks()))
	}
}

// If the kernel does not support socket storage for BPF programs, nftables forwards all connections. Without socket
// storage, getpeername cannot return the Service's address.
func TestWithoutStorage(t *testing.T) {
	if os.Getenv("EBPF_NO_STORAGE") == "" {
		t.Skip("it is for a kernel without cmpxchg16b (test/vm/jobs runs it)")
	}
	w := newWorld(t)
	node := plantest.Node()
	if err := w.proxier.Apply(t.Context(), proxiers.NewChange(nil,
		plantest.Plan(node, w.service(1, w.endpoints...)...))); err != nil {
		t.Fatal(err)
	}
	if w.proxier.shortcuts.problem == nil {
		t.Error("the self-test finds nothing amiss")
	}
	for _, f := range both {
		if w.ask("tcp", vip(f, 1)) == "" {
			t.Errorf("%s: not served", f)
		}
	}
}
