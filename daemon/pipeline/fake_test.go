package pipeline

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/tracker"
	"edgeway/proxiers"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// kernel is an Applier that verifies the Applier contract: if a Change has a Prev, Prev must equal the kernel's state,
// unless that state has drifted.
type kernel struct {
	t     *testing.T
	mu    sync.Mutex
	state map[string][32]byte
	took  []proxiers.Change
	// refusedVersions holds the ServicePort versions that the kernel refuses, whether a transaction adds or keeps them.
	refusedVersions map[string]bool
	// namesPort reports whether a refusal names the refused ServicePort.
	namesPort bool
	takes     time.Duration
	// If fault is not nil, each Apply calls it before changing the kernel, and fails if the call returns an error.
	fault         func(proxiers.Change) error
	drifted       bool
	running       bool
	refusalCounts map[string]int // the number of refused full Changes in the current search
	ended         time.Time
}

var errTransport = errors.New("netlink socket gone")

func newKernel(t *testing.T) *kernel {
	return &kernel{
		t: t, state: map[string][32]byte{},
		refusedVersions: map[string]bool{}, refusalCounts: map[string]int{},
	}
}

func key(s *plan.ServicePort) string { return s.Name.String() + "/" + s.Family.String() }

func version(s *plan.ServicePort) string { return key(s) + " " + hex.EncodeToString(s.Digest[:]) }

func contents(p *plan.Plan) map[string][32]byte {
	m := map[string][32]byte{}
	for _, s := range p.Services {
		m[key(s)] = s.Digest
	}
	return m
}

func equal(a, b map[string][32]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for k, v := range a {
		if w, ok := b[k]; !ok || w != v {
			return false
		}
	}
	return true
}

func (k *kernel) Apply(ctx context.Context, c proxiers.Change) error {
	k.mu.Lock()
	if k.running {
		k.t.Error("Apply runs concurrently with itself")
	}
	k.running = true
	if time.Since(k.ended) > 100*time.Millisecond {
		clear(k.refusalCounts) // a retry does not belong to the previous search
	}
	k.took = append(k.took, c)
	if c.Prev != nil && !k.drifted && !equal(contents(c.Prev), k.state) {
		k.t.Errorf("Apply %d: Prev is not what the kernel holds", len(k.took))
	}
	takes := k.takes
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		k.running, k.ended = false, time.Now()
		k.mu.Unlock()
	}()
	if takes > 0 {
		select {
		case <-time.After(takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fault != nil {
		if err := k.fault(c); err != nil {
			return err
		}
	}
	return k.commit(c)
}

func (k *kernel) commit(c proxiers.Change) error {
	for _, s := range c.Next.Services {
		if !k.refusedVersions[version(s)] {
			continue
		}
		if c.Prev == nil {
			bytes := fingerprint(c.Next)
			if k.refusalCounts[bytes]++; k.refusalCounts[bytes] > 2 {
				k.t.Errorf("Apply %d offers what was refused twice", len(k.took))
			}
		}
		if k.namesPort {
			return &proxiers.Refusal{Services: []*plan.ServicePort{s}, Err: errors.New("element of " + key(s))}
		}
		return fmt.Errorf("element of %s: %w", key(s), proxiers.ErrRefused)
	}
	if c.Prev == nil {
		k.state = contents(c.Next)
		k.drifted = false
		return nil
	}
	for _, s := range c.Changed {
		k.state[key(s)] = s.Digest
	}
	for _, s := range c.Removed {
		delete(k.state, key(s))
	}
	return nil
}

func fingerprint(p *plan.Plan) string {
	var b strings.Builder
	for _, s := range p.Services {
		b.WriteString(key(s) + hex.EncodeToString(s.Digest[:4]))
	}
	return b.String()
}

// takeChanges returns the Changes of all Applies since the last call to takeChanges.
func (k *kernel) takeChanges() []proxiers.Change {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := k.took
	k.took = nil
	return out
}

func (k *kernel) applies() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.took)
}

// removeAll removes all ServicePorts from the fake kernel without reporting drift.
func (k *kernel) removeAll() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.state = map[string][32]byte{}
}

func (k *kernel) holds(p *plan.Plan) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return equal(contents(p), k.state)
}

type world struct {
	mu        sync.Mutex
	ready     bool
	changed   chan struct{}
	node      chan struct{}
	services  map[string]*plan.ServicePort
	checks    []*plan.HealthCheck
	hostNode  *plan.Node
	triggers  []time.Time
	problems  []fault.Fault
	snapshots uint64
	// planGate, if not nil, blocks the planner until the test closes the channel.
	planGate chan struct{}
}

func newWorld() *world {
	return &world{
		ready: true, changed: make(chan struct{}, 1), node: make(chan struct{}, 1),
		services: map[string]*plan.ServicePort{}, hostNode: &plan.Node{Name: "edge"},
	}
}

type nodeChanges struct{ c chan struct{} }

func (n nodeChanges) Changed() <-chan struct{} { return n.c }
func (w *world) Changed() <-chan struct{}      { return w.changed }

func (w *world) Snapshot() (*tracker.Snapshot, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.ready {
		return nil, false
	}
	w.snapshots++
	s := &tracker.Snapshot{Generation: w.snapshots, Triggers: w.triggers}
	w.triggers = nil
	return s, true
}

func (w *world) plan(_ *tracker.Snapshot, prev *plan.Plan) (*plan.Plan, []fault.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait := w.planGate; wait != nil {
		w.mu.Unlock()
		<-wait
		w.mu.Lock()
	}
	p := w.wanted()
	if prev != nil {
		p.Generation = prev.Generation + 1
	}
	return p, w.problems
}

func (w *world) wanted() *plan.Plan {
	p := &plan.Plan{Node: w.hostNode, HealthChecks: w.checks}
	for _, s := range w.services {
		p.Services = append(p.Services, s)
	}
	slices.SortFunc(p.Services, (*plan.ServicePort).Compare)
	return p
}

// set replaces Service i with a version that has n endpoints, and returns the version's name. The pipeline receives the
// change only after a call to announce.
func (w *world) set(i, n int) string {
	s := &plan.ServicePort{
		Name:      plan.ServicePortName{Namespace: "default", Name: fmt.Sprintf("s%05d", i), Port: "http", Protocol: plan.TCP},
		Family:    plan.IPv4,
		Frontends: []plan.Frontend{{Addr: netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), Port: 80}},
	}
	for e := range n {
		s.Pools[plan.ClusterPool] = append(s.Pools[plan.ClusterPool], plan.Endpoint{
			Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(e >> 8), byte(e)}), 8080),
		})
	}
	s.Seal()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.services[s.Name.Name] = s
	return version(s)
}

func (w *world) remove(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.services, fmt.Sprintf("s%05d", i))
}

func (w *world) announce() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

type bench struct {
	*world
	kernel *kernel
	p      *Pipeline
	synced []SyncResult
	events []ApplyResult
	opts   Options
}

func start(t *testing.T, w *world, k *kernel, tune func(*Options), followers ...Stage) *bench {
	b := &bench{world: w, kernel: k}
	b.opts = Options{
		Logger: slog.New(slog.DiscardHandler), Tracker: w, Node: nodeChanges{w.node}, Plan: w.plan,
		Checks: nodeChanges{}, Parts: contain.New(slog.New(slog.DiscardHandler)), FullSyncInterval: time.Hour,
		OnApplied: func(a ApplyResult) { b.events = append(b.events, a) },
		OnSynced: func(_ *tracker.Snapshot, _ *plan.Plan, s SyncResult) {
			w.mu.Lock()
			defer w.mu.Unlock()
			b.synced = append(b.synced, s)
		},
	}
	if tune != nil {
		tune(&b.opts)
	}
	b.p = New(b.opts)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := b.p.Run(ctx, Stage{"backend", k}, followers...); err != nil {
			t.Errorf("Run: %v", err)
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
	return b
}

func (b *bench) told() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.synced)
}

func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// wantConverged fails the test unless the kernel holds the wanted ServicePorts. If the fake kernel refuses a
// ServicePort, it may hold another version of that ServicePort, or none.
func (b *bench) wantConverged(t *testing.T) {
	t.Helper()
	b.mu.Lock()
	want := b.wanted()
	b.mu.Unlock()
	b.kernel.mu.Lock()
	defer b.kernel.mu.Unlock()
	left := maps.Clone(b.kernel.state)
	for _, s := range want.Services {
		digest, held := left[key(s)]
		delete(left, key(s))
		if refused := b.kernel.refusedVersions[version(s)]; refused == (held && digest == s.Digest) {
			t.Errorf("%s: refused %t, held %t, as wanted %t", key(s), refused, held, digest == s.Digest)
		}
	}
	if len(left) > 0 {
		t.Errorf("the kernel holds what nobody wants: %v", slices.Collect(maps.Keys(left)))
	}
}

func random(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }
