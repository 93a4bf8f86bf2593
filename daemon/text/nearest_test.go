package text

import "testing"

func TestNearest(t *testing.T) {
	t.Parallel()
	kinds := []string{"Service", "EndpointSlice", "Node", "ServiceCIDR"}
	for word, want := range map[string]string{
		"Servce": "Service", "service": "Service", "Services": "Service", "Sevrice": "Service", "Endpointslice": "EndpointSlice",
		"EndpointSlices": "EndpointSlice", "Nodes": "Node", "ServiceCidr": "ServiceCIDR",
		"Pod": "", "Secret": "", "ConfigMap": "", "ServiceAccount": "", "Endpoints": "", "Namespace": "", "Ingress": "", "Event": "", "": "",
	} {
		if got, near := Suggest(word, kinds); got != want || near != (want != "") {
			t.Errorf("%q: %q %t, want %q", word, got, near, want)
		}
	}
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"abc", "abc", 0},
		{"prots", "ports", 1},
		{"wbe", "web", 1},
		{"kitten", "sitting", 3},
	} {
		if got := Distance(c.a, c.b); got != c.want {
			t.Errorf("%q to %q: %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
