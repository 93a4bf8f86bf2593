// Package hostile holds objects as a hostile or broken cluster may have them, in small: seeds of all fuzz targets that
// take objects, and so cases of every run of the tests. It also makes objects of bytes that a fuzzer chose.
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

// Manifests gives the corpus: files of several documents, in the order of their names.
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
		t.Fatalf("%d files of hostile objects, error %v", len(out), err)
	}
	return out
}

// Streams gives the JSON of the corpus, and of Many, one object a line: for each manifest those documents that have
// one.
func Streams(t testing.TB) (out [][]byte) {
	t.Helper()
	for _, text := range append(Manifests(t), Many(1000, 3)) {
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

// Objects gives the lines of Streams.
func Objects(t testing.TB) (out [][]byte) {
	t.Helper()
	for _, stream := range Streams(t) {
		out = slices.AppendSeq(out, bytes.Lines(stream))
	}
	if len(out) < 40 {
		t.Fatalf("only %d hostile objects are JSON", len(out))
	}
	return out
}

// Many is a manifest of a Service of so many ports, each of which has so many endpoints.
func Many(ports, endpoints int) []byte {
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

// Control gives the first control character in a text, with what is around it, or an empty string. A terminal takes
// those from 0x80 to 0x9f, too, and characters that change the direction of the text hide what is written.
func Control(text string) string {
	bad := func(r rune) bool { return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) }
	i := strings.IndexFunc(text, bad)
	if i < 0 {
		return ""
	}
	return fmt.Sprintf("%q at %d", text[max(0, i-20):min(len(text), i+20)], i)
}
