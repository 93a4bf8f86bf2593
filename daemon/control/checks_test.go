package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/health"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

func TestDeadEndpointsAreListed(t *testing.T) {
	now := time.Now()
	dead := &endpointcheck.Dead{Faults: map[netip.AddrPort]fault.Fault{}}
	for i := range 60 {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, 0, byte(i)}), 80)
		dead.Faults[at] = fault.Fault{Since: now.Add(-time.Minute), Message: "connection refused"}
	}
	for _, c := range []struct {
		checks *StatusChecks
		want   []string
		lines  int
	}{
		{nil, nil, 0},
		{NewStatusChecks(70, nil), []string{"checks     70 ", "0 "}, 1},
		{NewStatusChecks(70, dead), []string{
			"checks     70 ", "60 ",
			"10.1.0.0:80 ", "1m0s: connection refused", "10.1.0.49:80", "and 10 more",
		}, 52},
	} {
		var text strings.Builder
		if err := NewStatus(StatusInput{Checks: c.checks, Health: health.Report{Time: now}}).WriteText(&text); err != nil {
			t.Fatal(err)
		}
		for _, want := range c.want {
			if !strings.Contains(text.String(), want) {
				t.Errorf("the status does not say %q:\n%s", want, &text)
			}
		}
		if _, rest, _ := strings.Cut(text.String(), "\nchecks"); c.lines > 0 && strings.Count(rest, "\n") != c.lines+1 { // the last one is the daemon's
			t.Errorf("%d lines, want %d of checks:\n%s", strings.Count(rest, "\n"), c.lines, &text)
		} else if c.lines == 0 && rest != "" {
			t.Errorf("checks where there are none:\n%s", &text)
		}
	}
}

func TestPlanAndExplainSayWhatIsDead(t *testing.T) {
	const why = "10.3.0.1:8080 does not answer since noon: connection refused"
	d := &daemon{state: testState()}
	d.Out = func(sp *plan.ServicePort) []string {
		if sp.Name.Name == "web" && sp.Family == plan.IPv4 {
			return []string{why}
		}
		return nil
	}
	c, stop := start(t, d)
	defer stop()
	p, err := c.Plan(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	for _, svc := range p.Services {
		has := slices.Contains(svc.Out, why)
		if want := strings.Contains(svc.Name, "web") && svc.Family == "IPv4"; has != want {
			t.Errorf("%s %s: out are %q", svc.Name, svc.Family, svc.Out)
		}
	}
	for dst, want := range map[string]bool{"10.96.0.1:80": true, "10.96.0.2:53/udp": false, "198.18.0.1:1": false} {
		e, err := c.Explain(t.Context(), "192.0.2.99", dst, "")
		if err != nil {
			t.Fatal(err)
		}
		var text strings.Builder
		if err := e.WriteText(&text); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(text.String(), fmt.Sprintf("dead       %s\n", why)); got != want {
			t.Errorf("explain %s:\n%s", dst, &text)
		}
	}
}
