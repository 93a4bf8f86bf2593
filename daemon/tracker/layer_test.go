package tracker

import (
	"slices"
	"testing"

	"edgeway/daemon/source"
)

// A Document describes a fault, so it does not count as a change to the layer's objects.
func TestLayerCountsChanges(t *testing.T) {
	tr := New(Layer{Name: "file"})
	sink := tr.Sink("file")
	sink.Upsert(&source.Document{Name: "f.yaml#1"})
	if n, synced := tr.Changes("file"); n != 0 || synced {
		t.Errorf("%d changes, synced %v", n, synced)
	}
	web := &source.Service{Namespace: "ns", Name: "web"}
	sink.Upsert(web)
	sink.Delete(web.Key())
	sink.Upsert(web)
	sink.Synced()
	if n, synced := tr.Changes("file"); n != 3 || !synced {
		t.Errorf("%d changes, synced %v", n, synced)
	}
	if objects := tr.Objects("file"); len(objects) != 2 || !slices.Contains(objects, source.Object(web)) {
		t.Errorf("objects %v", objects)
	}
}
