package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// The kernel forwards nothing, as by default: connections from outside end here, although the rules are right.
func TestDoctorMendsAHostThatDoesNotForward(t *testing.T) {
	t.Parallel()
	l, d := running(t)
	_, nodePort := l.namespace().web("shop")
	works := answers(l.client, nodePort, "ep1")
	l.within(patience, works)
	d.well("ip-forward")

	l.must(l.node.Sysctl("ipv4/ip_forward", "0"))
	l.must(unanswered(l.client, nodePort)())
	d.cured("ip-forward", "net.ipv4.ip_forward is 0", works)

	// Without a daemon the doctor knows the Services from the last-known state.
	d.stop()
	l.must(l.node.Sysctl("ipv4/ip_forward", "0"))
	out := d.diagnosed("ip-forward", "net.ipv4.ip_forward is 0")
	if !strings.Contains(out, "no daemon answers") {
		t.Errorf("edgeway doctor does not say that it has no daemon to ask:\n%s", out)
	}
	d.obey("ip-forward", out)
	l.must(works())
	if out, errs, code := d.edgeway("doctor"); code != 0 {
		t.Errorf("edgeway doctor ended with %d:\n%s%s", code, out, errs)
	}
}

// The kernel looks a route up before it translates: an air-gapped host without a default route has none to any
// ClusterIP.
func TestDoctorMendsAHostWithoutARouteToServices(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDaemon()
	d.configure("[routes]\nservices = \"never\"\n")
	n := l.namespace()
	d.watchOnly(n)
	d.startReady()
	clusterIP, _ := n.web("shop")
	flow := netlab.Flow{Protocol: plan.TCP, To: netip.MustParseAddrPort(clusterIP), Wait: dialTimeout}
	works := func() error {
		if got := l.node.Connect(flow); got.Server != "ep1" {
			return fmt.Errorf("from the host to %s: %s, want served by ep1", clusterIP, got)
		}
		return nil
	}
	l.within(patience, works)
	d.well("route-services")

	l.onNode("ip", "route", "del", "default")
	if works() == nil {
		t.Fatal("the host needs no route: this test sees nothing")
	}
	d.cured("route-services", "the Service range 10.96.0.0/12 (network is unreachable)", works)
}

// The network of an endpoint has no route. The operator knows the node's address.
func TestDoctorMendsAHostWithoutARouteToEndpoints(t *testing.T) {
	t.Parallel()
	const workerAddr, podAddr = "198.51.100.21", "10.244.7.11"
	l := newLab(t)
	worker := l.net.Host("worker", netip.MustParseAddr(workerAddr), netip.MustParseAddr(podAddr))
	l.must(worker.Serve("worker", netip.AddrPortFrom(netip.MustParseAddr(podAddr), endpointPort), plan.TCP))
	d := l.newDaemon()
	d.configure("[proxy]\nnodeport_addresses = [\"192.0.2.0/24\"]\n") // there will be no default route to go by
	n := l.namespace()
	d.watchOnly(n)
	d.startReady()
	svc := n.service("shop", func(s *corev1.ServiceSpec) { s.Type = corev1.ServiceTypeNodePort })
	n.endpointsOn("shop", "worker-1", podAddr)
	nodePort := at(nodeAddr, int(svc.Spec.Ports[0].NodePort))
	works := answers(l.client, nodePort, "worker")
	l.within(patience, works)
	d.well("route-endpoints")

	l.onNode("ip", "route", "add", "10.96.0.0/12", "dev", "lo", "src", nodeAddr) // the other fault is another test's
	l.onNode("ip", "route", "del", "default")
	l.onNode("ip", "route", "del", podAddr)
	l.must(unanswered(l.client, nodePort)())
	d.router = workerAddr
	d.cured("route-endpoints", podAddr+" of "+n.name+"/shop", works)
}

// well wants no fault of the host, anywhere.
func (d *daemon) well(check string) {
	d.t.Helper()
	d.within(patience, d.says("healthy"))
	d.within(patience, d.hasMetric(fmt.Sprintf(`edgeway_fault{name=%q} 0`, check)))
	if out, errs, code := d.edgeway("doctor"); code != 0 {
		d.t.Fatalf("edgeway doctor ended with %d on a host that works:\n%s%s", code, out, errs)
	}
}

// cured wants the daemon and the doctor to name a fault of the host, and the doctor's commands, as printed, to mend it.
func (d *daemon) cured(check, words string, works func() error) {
	d.t.Helper()
	took := d.within(patience, func() error {
		out, errs, code := d.edgeway("status")
		if code != 4 || !containsAll(out, []string{"DEGRADED", "problem   " + check, words, "fix: "}) {
			return fmt.Errorf("edgeway status ended with %d and does not name %s:\n%s%s", code, check, out, errs)
		}
		return nil
	})
	d.t.Logf("edgeway status named it after %.1f s", took.Seconds())
	d.degraded(check)
	d.within(patience, d.metric(fmt.Sprintf(`edgeway_fault{name=%q}`, check), 1))
	d.within(patience, d.logged("level=ERROR", "fault began", "fault="+check))
	out := d.diagnosed(check, words)
	d.obey(check, out)
	d.within(patience, works)
	d.within(patience, d.says("healthy"))
	d.within(patience, d.logged("fault ended", "fault="+check))
	if out, errs, code := d.edgeway("doctor"); code != 0 {
		d.t.Errorf("edgeway doctor ended with %d after its own commands:\n%s%s", code, out, errs)
	}
}

// degraded wants the words for programs: load balancers are not sent away, who asks for the readiness is told.
func (d *daemon) degraded(check string) {
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
	if s.State != "degraded" || !s.Healthy || !s.Ready || !strings.HasPrefix(s.Summary, "degraded: ") || first.ID != check || first.Severity != "problem" || first.Fix == "" {
		d.t.Errorf("status as JSON: %+v", s)
	}
	d.must(d.healthy())
	code, body, err := d.get(healthAddr, "/readyz?verbose")
	if err != nil || code != 200 || !strings.Contains(body, fmt.Sprintf(`{"id":%q,"severity":"problem"`, check)) {
		d.t.Errorf("/readyz?verbose: %d %v %s", code, err, body)
	}
}

// diagnosed wants edgeway doctor to name the fault, as text and as JSON, and gives the text.
func (d *daemon) diagnosed(check, words string) string {
	d.t.Helper()
	out, errs, code := d.edgeway("doctor", "--json")
	var report struct {
		Severity string
		Faults   []struct{ ID, Severity, Message, Fix string }
	}
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		d.t.Fatalf("edgeway doctor --json: %v in %s%s", err, out, errs)
	}
	first := report.Faults[0]
	if code != 4 || report.Severity != "problem" || first.ID != check || first.Severity != "problem" || !strings.Contains(first.Message, words) || first.Fix == "" {
		d.t.Fatalf("edgeway doctor --json ended with %d: %+v", code, report)
	}
	out, errs, code = d.edgeway("doctor")
	// The Services that it names may be others by now: all tests have one API server.
	if code != 4 || !containsAll(out, []string{words, first.Fix}) {
		d.t.Fatalf("edgeway doctor ended with %d and does not say the same:\n%s%s", code, out, errs)
	}
	return out
}

// obey runs the commands that the text of edgeway doctor has for the problems of a check.
func (d *daemon) obey(check, out string) {
	d.t.Helper()
	ours, ran := false, 0
	for line := range strings.Lines(out) {
		if command, is := strings.CutPrefix(strings.TrimSpace(line), "fix: "); is && ours {
			d.t.Logf("%s: %s", check, command)
			d.onNode("sh", "-ec", "ROUTER="+d.router+"\n"+command)
			ran++
			continue
		}
		fields := strings.Fields(line)
		ours = len(fields) > 1 && fields[0] == "problem" && fields[1] == check+":"
	}
	if ran == 0 {
		d.t.Fatalf("edgeway doctor has no command for %s:\n%s", check, out)
	}
}
