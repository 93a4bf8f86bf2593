package file

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"edgeway/daemon/source"
)

// examples returns the text of the example manifests in etc/edgeway/examples.
func examples(t *testing.T) (out []string) {
	t.Helper()
	paths, err := filepath.Glob("../../../etc/edgeway/examples/*.yaml")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no examples: %v", err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(string(text), "\n...\n") {
			t.Errorf("%s does not end with the document end marker", path)
		}
		out = append(out, string(text))
	}
	return out
}

// forwardingData returns the data that affects connections: each Service's ClusterIPs and ports, and each
// EndpointSlice's ports and endpoints.
func (f *manifestDir) forwardingData() map[string]string {
	out := map[string]string{}
	for key, obj := range f.sink.objects {
		switch o := obj.(type) {
		case *source.Service:
			out[key.String()] = fmt.Sprint(o.ClusterIPs, o.Ports)
		case *source.EndpointSlice:
			out[key.String()] = fmt.Sprintf("%v %+v", o.Ports, o.Endpoints)
		}
	}
	return out
}

// wantNothingRemoved writes text to a.yaml, and then overwrites the file with each string in others. The test fails if
// Edgeway removes a Service or an endpoint. With -short, wantNothingRemoved uses only every seventh string in others.
func wantNothingRemoved(t *testing.T, text string, others []string) {
	t.Helper()
	if testing.Short() {
		kept := others[:0]
		for i := 0; i < len(others); i += 7 {
			kept = append(kept, others[i])
		}
		others = kept
	}
	f := newManifestDir(t)
	f.write("a.yaml", text)
	f.read()
	want := f.forwardingData()
	if len(want) == 0 {
		t.Fatalf("no objects in:\n%s", text)
	}
	for i, other := range others {
		if i%50 == 0 { // Edgeway must also keep the previous run's objects
			f.write("a.yaml", text)
			f.read()
			f.restart()
		}
		f.write("a.yaml", other)
		f.read()
		if diff := cmp.Diff(want, f.forwardingData()); diff != "" {
			t.Fatalf("lost (-before +after):\n%s\nby:\n%s", diff, other)
		}
		if f.src.Status().Fault.Message == "" && other != text {
			t.Fatalf("nothing is told of:\n%s", other)
		}
	}
}

// If a file is truncated, for example by an interrupted copy or a full disk, Edgeway removes no Service or endpoint. If
// a file ends with the document end marker, the test truncates it at every byte. The test truncates any other file only
// within a line.
func TestCutFilesLoseNothing(t *testing.T) {
	for _, text := range examples(t) {
		var anywhere, withinLines []string
		for n := range len(text) {
			anywhere = append(anywhere, text[:n])
		}
		wantNothingRemoved(t, text, anywhere)
		text = strings.TrimSuffix(text, "...\n")
		for n := range len(text) {
			if n > 0 && text[n-1] != '\n' {
				withinLines = append(withinLines, text[:n])
			}
		}
		wantNothingRemoved(t, text, withinLines)
	}
}

var words = regexp.MustCompile(`(?m)(?:^|[ {,])([a-zA-Z]+):|kind: (\w+)|apiVersion: ([\w./]+)`)

func TestMisspeltWordsLoseNothing(t *testing.T) {
	for _, text := range examples(t) {
		var others []string
		for _, found := range words.FindAllStringSubmatchIndex(text, -1) {
			for group := 2; group < len(found); group += 2 {
				from, to := found[group], found[group+1]
				if from < 0 || strings.HasPrefix(lineAt(text, from), "#") {
					continue
				}
				for i := from; i+1 < to; i++ {
					swapped := []byte(text)
					swapped[i], swapped[i+1] = text[i+1], text[i]
					others = append(others, string(swapped), text[:i]+text[i+1:])
				}
			}
		}
		others = slices.DeleteFunc(others, func(s string) bool { return s == text })
		wantNothingRemoved(t, text, others)
	}
}

func lineAt(text string, at int) string {
	begin := strings.LastIndex(text[:at], "\n") + 1
	line, _, _ := strings.Cut(text[begin:], "\n")
	return strings.TrimSpace(line)
}

// Edgeway removes a deleted Service even if another object, such as a Deployment, has the same name.
func TestDeploymentOfSameNameDoesNotKeepService(t *testing.T) {
	const deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n"
	f := newManifestDir(t)
	f.write("a.yaml", web+"---\n"+deployment)
	f.expect("Service default/web")
	f.write("a.yaml", deployment)
	f.expect("")
	if st := f.src.Status(); st.Fault.Message != "" {
		t.Errorf("status %+v", st)
	}
}
