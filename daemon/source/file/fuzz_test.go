package file

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edgeway/daemon/source"
	"edgeway/daemon/source/convert"
	"edgeway/test/hostile"
)

// Reading an arbitrary file must not panic, and each served object must be valid or contain only faults. Check must
// report all data that Edgeway ignores, and each reported line must exist in the file.
func FuzzManifest(f *testing.F) {
	f.Add([]byte(web+"---\n"+slice), false)
	f.Add([]byte("apiVersion: v1\nkind: List\nitems:\n- "+strings.ReplaceAll(web, "\n", "\n  ")), false)
	f.Add([]byte(`{"apiVersion":"networking.k8s.io/v1","kind":"ServiceCIDR","metadata":{"name":"k"},"spec":{"cidrs":["10.96.0.0/16"]}}{`), true)
	f.Add([]byte("apiVersion: v1\nkind: Node\nmetadata: {name: edge}\nstatus: {addresses: [{type: InternalIP, address: 192.0.2.1}]}\n"), false)
	for _, text := range append(hostile.Manifests(f), hostile.HugeManifest(1000, 3)) {
		f.Add(text, false)
	}
	for _, stream := range hostile.Streams(f) {
		f.Add(stream, true)
	}
	f.Fuzz(func(t *testing.T, data []byte, isJSON bool) {
		path := "/a.yaml"
		if isJSON {
			path = "/a.json"
		}
		s := New(Options{NodeName: "edge", Logger: slog.New(slog.DiscardHandler)})
		m := new(manifest)
		for _, text := range split(path, data) {
			m.documents = append(m.documents, s.parse(path, text))
		}
		s.manifests[path] = m
		r, wrong := &readResult{}, false
		s.merge(r)
		for key, obj := range r.objects {
			switch obj := obj.(type) {
			case *source.Document:
				if len(obj.Faults) == 0 {
					t.Errorf("%s has no problem", key)
				}
			default:
				if err := convert.Validate(obj); err != nil && len(obj.Problems()) == 0 {
					t.Error(err)
				}
			}
			for _, p := range obj.Problems() {
				wrong = true
				if strings.ContainsAny(p.String(), "\n\r\x00") {
					t.Errorf("problem %q is more than a line", p)
				}
			}
		}
		checkLines(t, filepath.Join(t.TempDir(), filepath.Base(path)), data, wrong)
	})
}

func checkLines(t *testing.T, path string, data []byte, wrong bool) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	found := Check(Options{Paths: []string{path}, NodeName: "edge", Logger: slog.New(slog.DiscardHandler)}).Problems
	if wrong && len(found) == 0 {
		t.Error("what the source leaves out is in order for the check")
	}
	lines := 2 // the library (go.yaml.in/yaml v3.0) adds one to the line of an error at the end
	for _, r := range string(data) {
		if strings.ContainsRune("\n\r\u0085\u2028\u2029", r) { // each character ends a line in YAML 1.1
			lines++
		}
	}
	for _, f := range found {
		if file, line := splitPosition(f.Position); file != path || line > lines {
			t.Errorf("%q is in no line of the file", f)
		}
		if strings.ContainsAny(f.String(), "\n\r\x00") {
			t.Errorf("fault %q is more than a line", f)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "---\n%s---\n%s", called(fmt.Sprintf("svc-%d", i)),
			strings.Replace(slice, "name: web-1", fmt.Sprintf("name: web-%d", i), 1))
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		s := New(Options{Logger: slog.New(slog.DiscardHandler)})
		for _, t := range split("a.yaml", []byte(text.String())) {
			s.parse("a.yaml", t)
		}
	}
}
