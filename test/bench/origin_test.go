package main

import (
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"edgeway/daemon/source"
	"edgeway/daemon/source/file"
	"edgeway/test/e2e/cluster"
)

// served is what Edgeway reads of a folder.
type served struct {
	objects map[source.Key]source.Object
	synced  sync.Once
	done    func()
}

func (s *served) Upsert(o source.Object) { s.objects[o.Key()] = o }
func (s *served) Delete(k source.Key)    { delete(s.objects, k) }
func (s *served) Synced()                { s.synced.Do(s.done) }

// read gives the endpoints of each Service that has a slice; nil for one without.
func read(t *testing.T, dir string) map[string][]string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	s := &served{objects: map[source.Key]source.Object{}, done: cancel}
	if err := file.New(file.Options{Paths: []string{dir}, Logger: slog.New(slog.DiscardHandler)}).Run(ctx, s); err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for o := range maps.Values(s.objects) {
		switch o := o.(type) {
		case *source.Service:
			all[o.Name] = append([]string{}, all[o.Name]...)
		case *source.EndpointSlice:
			for _, e := range o.Endpoints {
				all[o.Service] = append(all[o.Service], e.Addr.String())
			}
		case *source.Document:
			t.Errorf("%s: %v", o.Name, o.Faults)
		}
	}
	return all
}

// A folder has what was loaded, however many files that takes, each change of it, and the Service that comes and goes.
func TestManifests(t *testing.T) {
	ctx := t.Context()
	m, err := newManifests(filepath.Join(t.TempDir(), "manifests"))
	if err != nil {
		t.Fatal(err)
	}
	const few, all, endpoints = 3, 2*perManifest + 50, 2
	want := map[string][]string{}
	endpoint := func(i, j int) string { return cluster.EndpointAddr(i, j).String() }
	same := func(what string) {
		t.Helper()
		got := read(t, m.dir)
		for name, addrs := range want {
			if !slices.Equal(got[name], addrs) {
				t.Errorf("%s: %s has %q, want %q", what, name, got[name], addrs)
			}
		}
		if len(got) != len(want) {
			t.Errorf("%s: %d Services, want %d", what, len(got), len(want))
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(m.Load(ctx, cluster.Load{Services: few, Endpoints: endpoints}))
	must(m.Load(ctx, cluster.Load{First: few, Services: all - few, Endpoints: endpoints}))
	for i := range all {
		want[cluster.ServiceName(i)] = []string{endpoint(i, 0), endpoint(i, 1)}
	}
	same("loaded")

	var changed []*discoveryv1.EndpointSlice
	for _, i := range []int{1, perManifest, all - 1} {
		slice := cluster.Slice(i, endpoints)
		slice.Endpoints[1].Addresses[0] = endpoint(i, 9)
		changed = append(changed, slice)
		want[cluster.ServiceName(i)] = []string{endpoint(i, 0), endpoint(i, 9)}
	}
	must(m.UpdateSlices(ctx, changed))
	same("changed")

	name := cluster.ServiceName(all + 5)
	must(m.AddService(ctx, all+5))
	want[name] = []string{}
	same("with a Service more")
	must(m.AddSlice(ctx, cluster.Slice(all+5, endpoints)))
	want[name] = []string{endpoint(all+5, 0), endpoint(all+5, 1)}
	same("with its slice")
	must(m.RemoveService(ctx, all+5))
	delete(want, name)
	same("without it")
}
