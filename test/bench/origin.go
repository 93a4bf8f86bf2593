package main

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"edgeway/test/e2e/cluster"
)

// origin is where the Services are written: those of a cluster.Load, and one more at a time.
type origin interface {
	Load(ctx context.Context, l cluster.Load) error
	UpdateSlices(ctx context.Context, slices []*discoveryv1.EndpointSlice) error
	AddService(ctx context.Context, i int) error
	AddSlice(ctx context.Context, slice *discoveryv1.EndpointSlice) error
	RemoveService(ctx context.Context, i int) error
}

var (
	_ origin = (*cluster.Cluster)(nil)
	_ origin = (*manifests)(nil)
)

func (b *bench) newOrigin(ctx context.Context) (err error) {
	if b.opts.manifests {
		b.origin, err = newManifests(filepath.Join(b.dir, "manifests"))
		return err
	}
	if b.cluster, err = cluster.Start(ctx, cluster.Options{Netns: b.lab.core(), Addr: b.lab.api}); err == nil {
		b.origin = b.cluster
	}
	return err
}

// source is what the configuration of Edgeway says of the origin.
func (b *bench) source() string {
	if m, ok := b.origin.(*manifests); ok {
		return fmt.Sprintf("[source.file]\npaths = [%q]", m.dir)
	}
	return fmt.Sprintf("[source.kube]\nkubeconfig = %q", b.cluster.Kubeconfig(cluster.Edgeway))
}

// perManifest is how many Services a file of the Load has.
const perManifest = 100

// manifests is a folder of files with a Load's Services.
type manifests struct {
	dir              string
	count, endpoints int // of the Load: its Services, and the endpoints of each
	// slices are those that are other than the Load's, by number of the Service.
	slices map[int]*discoveryv1.EndpointSlice
}

func newManifests(dir string) (*manifests, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("folder of the manifests: %w", err)
	}
	return &manifests{dir: dir, slices: map[int]*discoveryv1.EndpointSlice{}}, nil
}

// Load implements origin. Loads come in the order of their numbers.
func (m *manifests) Load(_ context.Context, l cluster.Load) error {
	m.count, m.endpoints = l.First+l.Services, l.Endpoints
	for file := l.First / perManifest; file*perManifest < m.count; file++ {
		if err := m.write(file); err != nil {
			return err
		}
	}
	return nil
}

// UpdateSlices implements origin.
func (m *manifests) UpdateSlices(_ context.Context, slices []*discoveryv1.EndpointSlice) error {
	files := map[int]bool{}
	for _, s := range slices {
		i, ok := cluster.ServiceNumber(s.Name)
		if !ok {
			return fmt.Errorf("slice %s is of no Load", s.Name)
		}
		m.slices[i] = s
		files[i/perManifest] = true
	}
	for file := range maps.Keys(files) {
		if err := m.write(file); err != nil {
			return err
		}
	}
	return nil
}

// AddService implements origin, for one that is not of the Load.
func (m *manifests) AddService(_ context.Context, i int) error {
	return m.save(m.own(i), typed(i, nil))
}

// AddSlice implements origin, for the Service that was added last.
func (m *manifests) AddSlice(_ context.Context, slice *discoveryv1.EndpointSlice) error {
	i, ok := cluster.ServiceNumber(slice.Name)
	if !ok {
		return fmt.Errorf("slice %s is of no Load", slice.Name)
	}
	return m.save(m.own(i), typed(i, slice))
}

// RemoveService implements origin.
func (m *manifests) RemoveService(_ context.Context, i int) error {
	if err := os.Remove(filepath.Join(m.dir, m.own(i))); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}

// own is the name of the file of a Service that has one for itself.
func (m *manifests) own(i int) string { return cluster.ServiceName(i) + ".yaml" }

// write writes one file of the Load.
func (m *manifests) write(file int) error {
	var objects []any
	for i := file * perManifest; i < min((file+1)*perManifest, m.count); i++ {
		slice := m.slices[i]
		if slice == nil {
			slice = cluster.Slice(i, m.endpoints)
		}
		objects = append(objects, typed(i, slice)...)
	}
	return m.save(fmt.Sprintf("services-%05d.yaml", file), objects)
}

// typed gives Service i and its slice as manifests have them.
func typed(i int, slice *discoveryv1.EndpointSlice) []any {
	svc := cluster.Service(i)
	svc.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	if slice == nil {
		return []any{svc}
	}
	slice.TypeMeta = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"}
	return []any{svc, slice}
}

// save replaces a file at once: nobody sees half of it.
func (m *manifests) save(name string, objects []any) error {
	var text bytes.Buffer
	for _, o := range objects {
		document, err := yaml.Marshal(o)
		if err != nil {
			return fmt.Errorf("manifest %s: %w", name, err)
		}
		text.WriteString("---\n")
		text.Write(document)
	}
	next := filepath.Join(m.dir, "."+name)
	if err := os.WriteFile(next, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	if err := os.Rename(next, filepath.Join(m.dir, name)); err != nil {
		return fmt.Errorf("manifest: %w", err)
	}
	return nil
}
