package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// The status, the metrics, the log and /readyz must report a problem with the host. Load balancers must keep using the
// host despite the problem. If the daemon is not running, the doctor must read the Services from the last-known state.
func TestHostProblemIsReported(t *testing.T) {
	t.Parallel()
	l, d := running(t)
	n, _, _ := d.shop()
	l.waitFor(longTimeout, d.hasStored(n.name))
	const check, words = "ip-forward", "net.ipv4.ip_forward is 0"
	l.waitFor(longTimeout, d.hasMetric(fmt.Sprintf(`edgeway_fault{name=%q} 0`, check)))
	l.must(l.node.Sysctl("ipv4/ip_forward", "0"))
	f := d.fault(check, "problem", words)
	d.mustBeDegraded(check)
	l.waitFor(longTimeout, d.metricAtLeast(fmt.Sprintf(`edgeway_fault{name=%q}`, check), 1))
	l.waitFor(longTimeout, d.logged("level=ERROR", "fault began", "fault="+check))
	l.onNode("sh", "-ec", f.Fix)
	l.waitFor(longTimeout, d.statusPrints(": healthy"))
	l.waitFor(longTimeout, d.logged("fault ended", "fault="+check))

	d.stop()
	l.must(l.node.Sysctl("ipv4/ip_forward", "0"))
	if out, errs, code := d.edgeway("doctor"); code != 4 ||
		!containsAll(out, []string{"no daemon answers", words, f.Fix}) {
		t.Errorf("edgeway doctor without a daemon ended with %d:\n%s%s", code, out, errs)
	}
}

// mustBeDegraded fails the test unless the status is degraded, /healthz reports a healthy host, and /readyz?verbose
// lists the problem.
func (d *daemon) mustBeDegraded(check string) {
	d.t.Helper()
	out, _, _ := d.edgeway("status", "--json")
	var s struct {
		State, Summary string
		Healthy, Ready bool
		Faults         []struct{ ID, Severity, Fix string }
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		d.t.Fatal(err)
	}
	first := s.Faults[0]
	if s.State != "degraded" || !s.Healthy || !s.Ready || !strings.HasPrefix(s.Summary, "degraded: ") ||
		first.ID != check || first.Severity != "problem" || first.Fix == "" {
		d.t.Errorf("status as JSON: %+v", s)
	}
	d.must(d.healthy())
	code, body, err := d.get(healthAddr, "/readyz?verbose")
	if err != nil || code != 200 || !strings.Contains(body, fmt.Sprintf(`{"id":%q,"severity":"problem"`, check)) {
		d.t.Errorf("/readyz?verbose: %d %v %s", code, err, body)
	}
}
