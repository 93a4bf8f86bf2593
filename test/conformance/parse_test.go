package conformance

import (
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

func TestScenarioErrors(t *testing.T) {
	const sound = "About.\n-- plan --\nservice web\n  cluster pod-a\n  ClusterIP cluster-1:80 all=cluster\n-- flows --\npod-c -> cluster-1:80 pod-a\n"
	if _, err := parseScenario(txtar.Parse([]byte(sound))); err != nil {
		t.Fatalf("a sound scenario: %v", err)
	}
	for _, c := range []struct{ old, mistake, want string }{
		{"About.\n", "", "no description"},
		{"-- flows --", "-- flow --", `section 2 is "flow"`},
		{"service web\n", "", `"cluster" must follow a service line`},
		{"ClusterIP cluster-1", "Clusterip cluster-1", `unknown word "Clusterip"`},
		{"all=cluster", "all=nowhere", `route "nowhere"`},
		{"all=cluster", "everyone=cluster", `origin "everyone"`},
		{"all=cluster", "pod=cluster", "every origin needs a route"},
		{"cluster-1:80 all", "cluster-1:http all", "port of"},
		{"cluster-1:80 pod-a\n", "cluster-1:80\n", "not of the form"},
		{"-- flows --\npod-c -> cluster-1:80 pod-a\n", "", "a plan has no flows"},
		{"  cluster pod-a", "  for ICMP", `"ICMP" is neither a protocol nor a family`},
	} {
		text := strings.Replace(sound, c.old, c.mistake, 1)
		if _, err := parseScenario(txtar.Parse([]byte(text))); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q instead of %q: error %v, want one with %q", c.mistake, c.old, err, c.want)
		}
	}
}

func TestUnknownNameErrors(t *testing.T) {
	l := &labAddrs{} // this test needs no lab hosts
	for text, want := range map[string]string{
		"service web\n  cluster pod-z\n  ClusterIP cluster-1:80 all=cluster":                   `no endpoint is called "pod-z"`,
		"service web\n  ClusterIP moon-1:80 all=reject":                                        `no address is named "moon-1"`,
		"service web\n  ClusterIP cluster-1:80 all=cluster":                                    "the cluster pool, which is empty",
		"service web\n  ClusterIP cluster-1:80 from client-999 all=reject":                     `"client-999"`,
		"service web\n  ClusterIP cluster-1:80 all=reject\nservice web\n  NodePort 1 all=drop": "two services have the name",
	} {
		sp, err := parseSpec(text)
		if err == nil {
			_, err = sp.compileServices(l, nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("plan %q: error %v, want one with %q", text, err, want)
		}
	}
}
