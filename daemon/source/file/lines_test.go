package file

import (
	"testing"

	"go.yaml.in/yaml/v3"
)

func parsed(t *testing.T, text string) *yaml.Node {
	t.Helper()
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(text), &root); err != nil {
		t.Fatal(err)
	}
	return root.Content[0]
}

func TestFieldLineNumbers(t *testing.T) {
	t.Parallel()
	const text = `
apiVersion: v1
metadata:
  name: web
  labels: {kubernetes.io/service-name: web,
    other: x}
spec:
  nothing: null
  ports:
  - port: 80

    name: http
  - {name: dns, port: 53}
  5: five
items:
- - deep
`
	root := parsed(t, text)
	for field, want := range map[string]int{
		"": 2, "apiVersion": 2, "metadata.name": 4, "metadata.labels": 5,
		"metadata.labels[kubernetes.io/service-name]": 5, "metadata.labels[other]": 6, "metadata.labels[missing]": 5,
		"spec": 7, "spec.nothing": 8, "spec.nothing.more": 8, "spec.ports": 9, "spec.ports[0]": 10, "spec.ports[0].name": 12,
		"spec.ports[1].port": 13, "spec.ports[2].port": 9, "spec.ports.port": 9, "spec.5": 14, "items[0][0]": 16, "missing": 2,
	} {
		if got := lineOf(root, field); got != want {
			t.Errorf("%q is said to be in line %d, want %d", field, got, want)
		}
	}
}

func TestJSONLineNumbers(t *testing.T) {
	t.Parallel()
	root := parsed(t, "{\n  \"spec\": {\n    \"ports\": [\n      {\"port\": 0}\n    ]\n  }\n}\n")
	if got := lineOf(root, "spec.ports[0].port"); got != 4 {
		t.Errorf("line %d, want 4", got)
	}
}
