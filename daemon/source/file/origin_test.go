package file

import (
	"path/filepath"
	"strings"
	"testing"

	"edgeway/daemon/source"
)

// The source sets Service.Manifest for each Service from a manifest, even if it loaded the Service from the last-known
// state.
func TestManifestServicesAreMarked(t *testing.T) {
	f := newManifestDir(t)
	f.write("a.yaml", web)
	f.read()
	key := source.Key{Kind: source.KindService, Namespace: "default", Name: "web"}
	if got := f.sink.objects[key].(*source.Service); !got.Manifest {
		t.Errorf("Service %+v", got)
	}
	if at := f.src.Position(key); at != filepath.Join(f.dir, "a.yaml")+":1" {
		t.Errorf("it is in %s", at)
	}
	f.write("a.yaml", "# one more line\n---\n"+web)
	f.read()
	if at := f.src.Position(key); at != filepath.Join(f.dir, "a.yaml")+":2" {
		t.Errorf("after a change of the lines it is in %s", at)
	}
	f.write("a.yaml", "# one more line\n---\n"+strings.TrimSuffix(web, "}]\n")+"\n")
	f.read()
	if at := f.src.Position(key); at != filepath.Join(f.dir, "a.yaml")+":2" {
		t.Errorf("while its document does not parse, it is in %s", at)
	}
	f.restart()
	if got := f.sink.objects[key].(*source.Service); !got.Manifest {
		t.Errorf("after a restart: Service %+v", got)
	}
}
