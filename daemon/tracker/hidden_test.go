package tracker

import (
	"slices"
	"testing"

	"edgeway/daemon/source"
)

// A Service is hidden if two sources contain it. A source and its last-known state count as one source.
func TestHiddenServices(t *testing.T) {
	tr, file, kube, known := threeLayers()
	a, b := svc("a"), svc("b")
	check := func(what string, want ...source.Key) {
		t.Helper()
		if got := tr.HiddenServices(); !slices.Equal(got, want) {
			t.Errorf("%s: %v is hidden, want %v", what, got, want)
		}
	}
	known.Upsert(a)
	known.Upsert(b)
	known.Synced()
	kube.Upsert(svc("a"))
	check("in the API server and in the last-known state")
	file.Upsert(svc("b"))
	check("in a manifest and in the last-known state", b.Key())
	file.Upsert(svc("a"))
	check("in all layers", a.Key(), b.Key())
	kube.Synced()
	check("after the API server has listed all objects", a.Key())
	kube.Upsert(svc("b"))
	file.Delete(a.Key())
	check("after the manifest was deleted", b.Key())
	kube.Delete(b.Key())
	check("after the Service in the API server was deleted")
}
