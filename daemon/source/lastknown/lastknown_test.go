package lastknown

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

var equate = cmp.Options{
	cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

func aService(name string, port uint16) *source.Service {
	return &source.Service{
		Namespace: "ns", Name: name, UID: "u", Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")},
		Ports:      []source.ServicePort{{Name: "http", Protocol: plan.TCP, Port: port, NodePort: 30080}},
		Affinity:   time.Hour,
	}
}

func aSlice(name string, endpoints int) *source.EndpointSlice {
	s := &source.EndpointSlice{
		Namespace: "ns", Name: name + "-1", Service: name, Family: plan.IPv4,
		Ports: []source.SlicePort{{Name: "http", Protocol: plan.TCP, Port: 8080}},
	}
	for i := range endpoints {
		s.Endpoints = append(s.Endpoints, source.Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Ready: true, Serving: true,
			NodeName: fmt.Sprintf("node-%d", i%3), Hints: &source.Hints{ForZones: []string{"a"}},
		})
	}
	return s
}

func everyKind() []source.Object {
	svc := aService("web", 80)
	svc.Faults = []fault.Fault{source.FaultOf(svc.Key(), "spec.ports[1].port", "0 is not 1 to 65535")}
	return []source.Object{ // sorted by key
		&source.APIServer{
			Name:  "https://localhost:6443",
			Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("2001:db8::6")}, ProvenAddrs: provenAddrs(),
		},
		aSlice("web", 3),
		&source.Manifest{Name: "/etc/edgeway/manifests/web.yaml"},
		&source.Node{
			Name: "n", Zone: "a", Addresses: []netip.Addr{netip.MustParseAddr("2001:db8::1")},
			PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")},
		},
		svc,
		&source.ServiceCIDR{Name: "kubernetes", CIDRs: []netip.Prefix{netip.MustParsePrefix("10.96.0.0/16")}},
	}
}

// memory is a fake that serves both as a sink and as a tracker layer.
type memory struct {
	mu      sync.Mutex
	objects map[source.Key]source.Object
	n       uint64
	synced  bool
}

func newMemory() *memory { return &memory{objects: map[source.Key]source.Object{}} }

func (m *memory) Upsert(o source.Object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[o.Key()] = o
	m.n++
}

func (m *memory) Delete(k source.Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, k)
	m.n++
}

func (m *memory) Synced() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.synced = true
}

func (m *memory) changes() (n uint64, synced bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.n, m.synced
}

func (m *memory) all() iter.Seq[source.Object] {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Values(maps.Clone(m.objects))
}

func (m *memory) sorted() []source.Object {
	return slices.SortedFunc(m.all(), func(a, b source.Object) int { return a.Key().Compare(b.Key()) })
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func server(url string) func() Cluster { return func() Cluster { return Cluster{Server: url} } }

// host holds a Store that is configured as in the daemon, the objects that the Store loaded, and the API server's
// objects.
type host struct {
	*Store
	loaded, api *memory
	log         *syncBuffer
	stop        func()
}

func boot(t *testing.T, dir string) *host {
	t.Helper()
	h := &host{loaded: newMemory(), api: newMemory(), log: new(syncBuffer)}
	h.Store = New(dir, h.options("https://192.0.2.1:6443"))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := h.Run(ctx, h.loaded); err != nil {
			t.Error(err)
		}
	}()
	h.stop = func() { cancel(); <-done }
	synctest.Wait()
	return h
}

func (h *host) options(url string) Options {
	return Options{
		Cluster: server(url), Changes: h.api.changes, Objects: h.api.sorted,
		Logger: slog.New(slog.NewTextHandler(h.log, nil)),
	}
}

func (h *host) serve(objects ...source.Object) {
	for _, o := range objects {
		h.api.Upsert(o)
	}
	h.api.Synced()
	h.Commit(nil)
}

func TestStateIsRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "state")
		h := boot(t, dir)
		if !h.loaded.synced {
			t.Error("without a state there is nothing to wait for, but it is not synced")
		}
		if _, ok := h.SavedAt(); ok {
			t.Error("a state that is not there has an age")
		}
		h.serve(everyKind()...)
		time.Sleep(2 * time.Second)
		h.api.Upsert(aService("dns", 53))
		h.api.Delete(source.Key{Kind: source.KindServiceCIDR, Name: "kubernetes"})
		h.Commit(nil)
		time.Sleep(2 * time.Second)
		saved := time.Now().UTC().Truncate(time.Second)
		h.stop()
		want := h.api.sorted()

		time.Sleep(time.Hour)
		h = boot(t, dir)
		defer h.stop()
		if diff := cmp.Diff(want, h.loaded.sorted(), equate); diff != "" {
			t.Errorf("state (-want +got):\n%s", diff)
		}
		if age, ok := h.SavedAt(); !h.loaded.synced || !ok || saved.Sub(age) > time.Second || age.After(saved) {
			t.Errorf("synced %v, age %s %v, want %s", h.loaded.synced, age, ok, saved)
		}
	})
}

func TestOnlyCommittedStateIsSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.api.Upsert(aService("half", 80))
		h.Commit(nil)
		time.Sleep(2 * time.Second)
		if _, err := os.Stat(filepath.Join(dir, snapshotName)); err == nil {
			t.Error("half a list was saved")
		}
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		h.api.Upsert(aService("poison", 80))
		time.Sleep(2 * time.Second)
		h.stop()
		h = boot(t, dir)
		defer h.stop()
		if got := len(h.loaded.objects); got != 2 {
			t.Errorf("%d objects, want the two that were committed", got)
		}
	})
}

// SavedAt follows the time of the API server's last confirmation, even if no object changes. While the API server is
// unreachable, SavedAt stays the same.
func TestAgeFollowsLastConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		var contact atomic.Pointer[time.Time]
		hear := func() time.Time { now := time.Now(); contact.Store(&now); return now }
		hear()
		api := newMemory()
		s := New(dir, Options{
			Cluster: server("https://192.0.2.1"), Changes: api.changes, Objects: api.sorted,
			ConfirmedAt: func() time.Time { return *contact.Load() }, Logger: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = s.Run(ctx, newMemory()) }()
		api.Synced()
		s.Commit(nil)
		time.Sleep(30 * time.Minute)
		synctest.Wait()
		last := hear()
		time.Sleep(11 * time.Minute)
		synctest.Wait()
		if age, _ := s.SavedAt(); last.Sub(age) > time.Second {
			t.Errorf("age %s, want %s", age, last)
		}
		time.Sleep(10 * time.Hour)
		s.Commit(nil)
		time.Sleep(2 * time.Second)
		cancel()
		<-done
		st, err := readState(dir, nil)
		if err != nil || last.Sub(st.at) > time.Second || st.at.After(last) {
			t.Errorf("saved age %v, want %s: %v", st, last, err)
		}
	})
}

// Edgeway does not save Documents, which hold the faults in unusable manifest documents.
func TestDocumentsAreNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(aService("web", 80), &source.Document{Name: "a.yaml#1"})
		time.Sleep(2 * time.Second)
		h.stop()
		h = boot(t, dir)
		defer h.stop()
		if len(h.loaded.objects) != 1 {
			t.Errorf("%d objects", len(h.loaded.objects))
		}
	})
}

// A Commit without changes does not cause a write.
func TestUnchangedStateIsNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(aService("web", 80))
		time.Sleep(2 * time.Second)
		before := stat(t, dir)
		h.Commit(nil)
		time.Sleep(2 * time.Second)
		h.stop()
		if !os.SameFile(before, stat(t, dir)) {
			t.Error("the snapshot was written again")
		}
	})
}

func TestLoad(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "state")
	synctest.Test(t, func(t *testing.T) {
		s := New(dir, Options{
			Name: "other", Cluster: server("https://192.0.2.1:6443"),
			Logger: slog.New(slog.DiscardHandler),
		})
		if objects, ok := s.Load(); !ok || objects != nil || s.Name() != "other" {
			t.Errorf("without a state: %v %v, as %q", objects, ok, s.Name())
		}
		if _, ok := s.SavedAt(); ok {
			t.Error("a state that is not there has an age")
		}
		h := boot(t, dir)
		h.serve(everyKind()...)
		time.Sleep(2 * time.Second)
		h.stop()
		objects, ok := s.Load()
		if diff := cmp.Diff(everyKind(), objects, equate); !ok || diff != "" {
			t.Errorf("ok %v, state (-want +got):\n%s", ok, diff)
		}
		if _, ok := s.SavedAt(); !ok {
			t.Error("the state has no age")
		}
		if err := os.WriteFile(filepath.Join(dir, snapshotName), []byte("damaged\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if objects, ok := s.Load(); ok || objects != nil {
			t.Errorf("a damaged state: %v %v", objects, ok)
		}
	})
}

func TestFaultOnlyObjectsAreNotSaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(&source.EndpointSlice{Namespace: "ns", Name: "nameless"}, aService("web", 80))
		time.Sleep(2 * time.Second)
		h.api.Upsert(&source.EndpointSlice{Namespace: "ns", Name: "nameless-2"})
		h.Commit(nil)
		time.Sleep(2 * time.Second)
		h.stop()
		h = boot(t, dir)
		defer h.stop()
		if len(h.loaded.objects) != 1 || h.log.String() == "" || strings.Contains(h.log.String(), "WARN") {
			t.Errorf("%d objects, log:\n%s", len(h.loaded.objects), h.log)
		}
	})
}

func provenAddrs() []source.ServerAddr {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	return []source.ServerAddr{
		{Addr: netip.MustParseAddr("2001:db8::6"), ProvedAt: at},
		{Addr: netip.MustParseAddr("127.0.0.1"), ProvedAt: at.Add(-time.Hour), MissingSince: at},
	}
}
