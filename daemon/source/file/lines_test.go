package file

import "testing"

func TestSpotsFindTheLineOfAField(t *testing.T) {
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
	s := spots([]byte(text))
	for field, want := range map[string]int{
		"": 2, "apiVersion": 2, "metadata.name": 4, "metadata.labels": 5,
		"metadata.labels[kubernetes.io/service-name]": 5, "metadata.labels[other]": 6, "metadata.labels[missing]": 5,
		"spec": 7, "spec.nothing": 8, "spec.nothing.more": 8, "spec.ports": 9, "spec.ports[0]": 10, "spec.ports[0].name": 12,
		"spec.ports[1].port": 13, "spec.ports[2].port": 9, "spec.ports.port": 9, "spec.5": 14, "items[0][0]": 16, "missing": 2,
	} {
		if got := s.find(field); got != want {
			t.Errorf("%q is said to be in line %d, want %d", field, got, want)
		}
	}
	for _, text := range []string{"", "a: [", "# nothing", "null", "word"} {
		if got := spots([]byte(text)).find("a.b"); got != 1 {
			t.Errorf("%q: line %d, want 1", text, got)
		}
	}
}

func TestLinesOfJSON(t *testing.T) {
	t.Parallel()
	s := spots([]byte("{\n  \"spec\": {\n    \"ports\": [\n      {\"port\": 0}\n    ]\n  }\n}\n"))
	if got := s.find("spec.ports[0].port"); got != 4 {
		t.Errorf("line %d, want 4", got)
	}
}
