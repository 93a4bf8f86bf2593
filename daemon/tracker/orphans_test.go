package tracker

import (
	"slices"
	"testing"

	"edgeway/daemon/source"
)

// A manifest's EndpointSlice whose Service is missing is a mistake; an API server's may be of a Service that is not
// read.
func TestOrphansAreOfManifests(t *testing.T) {
	tr, file, kube, _ := threeLayers()
	manifest := func(name, service string) *source.EndpointSlice {
		s := slice(name, service)
		s.Manifest = true
		return s
	}
	file.Upsert(svc("web"))
	file.Upsert(manifest("web-1", "web"))
	file.Upsert(manifest("lost-2", "lost"))
	file.Upsert(manifest("lost-1", "lost"))
	file.Upsert(manifest("faulty", "")) // has a problem already
	kube.Upsert(slice("other-1", "other"))
	orphans := func() (names []string) {
		for _, s := range tr.Orphans() {
			names = append(names, s.Name)
		}
		return names
	}
	if got := orphans(); !slices.Equal(got, []string{"lost-1", "lost-2"}) {
		t.Errorf("orphans %q", got)
	}
	kube.Upsert(svc("lost"))
	file.Delete(svc("web").Key())
	if got := orphans(); !slices.Equal(got, []string{"web-1"}) {
		t.Errorf("orphans afterwards %q", got)
	}
}
