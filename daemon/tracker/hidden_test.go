package tracker

import "testing"

// Edgeway serves the same Service from the API server and from the last-known state without a fault.
func TestLastKnownStateHidesNothing(t *testing.T) {
	tr, file, kube, known := threeLayers()
	known.Upsert(svc("a"))
	known.Synced()
	kube.Upsert(svc("a"))
	file.Synced()
	if got := mustSnapshot(t, tr).Problems; len(got) != 0 {
		t.Errorf("problems: %v", got)
	}
	file.Upsert(svc("a"))
	kube.Synced()
	if got := mustSnapshot(t, tr).Problems; len(got) != 1 {
		t.Errorf("problems of a Service in two sources: %v", got)
	}
}
