package file

import (
	"testing"

	"edgeway/daemon/source"
)

// A Service of a manifest is known as one, also when the last-known state has it.
func TestServicesOfManifests(t *testing.T) {
	f := newFolder(t)
	f.write("a.yaml", web)
	f.read()
	key := source.Key{Kind: source.KindService, Namespace: "default", Name: "web"}
	if got := f.sink.objects[key].(*source.Service); !got.Manifest {
		t.Errorf("Service %+v", got)
	}
	f.restart()
	if got := f.sink.objects[key].(*source.Service); !got.Manifest {
		t.Errorf("after a restart: Service %+v", got)
	}
}
