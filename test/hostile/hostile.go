// Package hostile contains small examples of objects from a hostile or broken cluster. The examples are the seeds of
// all fuzz targets that read objects, so every test run uses them. The package can also create objects from a fuzzer's
// bytes.
package hostile

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"unicode"

	"sigs.k8s.io/yaml"
)

//go:embed testdata/*.yaml
var files embed.FS

// Manifests returns the contents of the corpus files, sorted by file name. Each file contains several YAML documents.
func Manifests(t testing.TB) (out [][]byte) {
	t.Helper()
	err := fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := files.ReadFile(path)
		out = append(out, text)
		return err
	})
	if err != nil || len(out) < 6 {
		t.Fatalf("cannot read the hostile objects: found %d files, error %v", len(out), err)
	}
	return out
}

// Streams returns a JSON stream, with one object per line, for each file of the corpus and for a manifest from
// HugeManifest. It omits documents that JSON cannot represent.
func Streams(t testing.TB) (out [][]byte) {
	t.Helper()
	for _, text := range append(Manifests(t), HugeManifest(1000, 3)) {
		var stream []byte
		for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
			if object, err := yaml.YAMLToJSON(doc); err == nil {
				stream = append(append(stream, object...), '\n')
			}
		}
		out = append(out, stream)
	}
	return out
}

// Objects returns every object in Streams as one line of JSON.
func Objects(t testing.TB) (out [][]byte) {
	t.Helper()
	for _, stream := range Streams(t) {
		out = slices.AppendSeq(out, bytes.Lines(stream))
	}
	if len(out) < 40 {
		t.Fatalf("only %d hostile objects are valid JSON", len(out))
	}
	return out
}

// HugeManifest returns a manifest of a Service with the given number of ports and the given number of endpoints for
// each port.
func HugeManifest(ports, endpoints int) []byte {
	var b bytes.Buffer
	b.WriteString("apiVersion: v1\nkind: Service\nmetadata: {namespace: evil, name: many}\nspec:\n  type: NodePort\n  clusterIP: 10.96.7.1\n  ports:\n")
	for i := range ports {
		fmt.Fprintf(&b, "  - {name: p%d, port: %d, nodePort: %d}\n", i, i+1, i+30000)
	}
	b.WriteString("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {namespace: evil, name: many-1, labels: {kubernetes.io/service-name: many}}\naddressType: IPv4\nports:\n")
	for i := range ports {
		fmt.Fprintf(&b, "- {name: p%d, port: %d}\n", i, i+1)
	}
	b.WriteString("endpoints:\n")
	for i := range endpoints {
		fmt.Fprintf(&b, "- {addresses: [10.1.%d.%d]}\n", i/250, i%250+1)
	}
	return b.Bytes()
}

// FindControl returns the first control character in text, together with the text around it, or "" if there is none. It
// also finds the bytes 0x80 to 0x9f, which terminals interpret as control codes. Characters that change the text
// direction count as control characters, because they can hide words.
func FindControl(text string) string {
	bad := func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
	i := strings.IndexFunc(text, bad)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("%q at %d", text[max(0, i-20):min(len(text), i+20)], i)
}
