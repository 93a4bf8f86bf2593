package control

import (
	"fmt"
	"strings"
	"testing"

	"edgeway/proxiers/plan"
)

func TestExplainReportsDeadEndpoints(t *testing.T) {
	const why = "10.3.0.1:8080 does not answer since noon: connection refused"
	d := &daemon{state: testState()}
	d.DescribeDead = func(sp *plan.ServicePort) []string {
		if sp.Name.Name == "web" && sp.Family == plan.IPv4 {
			return []string{why}
		}
		return nil
	}
	c, stop := start(t, d)
	defer stop()
	for dst, want := range map[string]bool{"10.96.0.1:80": true, "10.96.0.2:53/udp": false, "198.18.0.1:1": false} {
		e, err := c.Explain(t.Context(), "192.0.2.99", dst, "")
		if err != nil {
			t.Fatal(err)
		}
		text := formatText(e, 0, false)
		if got := strings.Contains(text, fmt.Sprintf("dead       %s\n", why)); got != want {
			t.Errorf("explain %s:\n%s", dst, text)
		}
	}
}
