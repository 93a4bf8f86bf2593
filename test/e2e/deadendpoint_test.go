package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// One of two endpoints is dead, and nobody checks them: edgeway doctor says how to find it and what mends it. Then the
// other one is dead, too: status and doctor name it, and the connection works once the program runs that they name.
func TestDoctorMendsDeadEndpoints(t *testing.T) {
	t.Parallel()
	l := newLab(t)
	d := l.newDaemon()
	n := l.namespace()
	d.watchOnly(n)
	d.startReady()
	svc := n.service("shop", nil)
	n.endpoints("shop", ep1Addr, ep2Addr)
	web, name := at(svc.Spec.ClusterIP, 80), n.name+"/shop"
	l.within(patience, answers(l.node, web, "ep1"))
	l.within(patience, answers(l.node, web, "ep2"))
	leaves := func(dead string) func() error {
		return func() error {
			out, _, _ := d.edgeway("explain", "host", web)
			if !strings.Contains(out, "dead ") || strings.Contains(out, "it stays in use") {
				return fmt.Errorf("%s is still in use:\n%s", dead, out)
			}
			return nil
		}
	}
	const setting = `checks.tcp.sources = ["kube"]`
	l.must(d.shows([]string{"doctor"}, "edgeway doctor --connect ", setting)())

	l.kill(l.ep1, programDies)
	l.within(patience, unanswered(l.node, web))
	found := d.only(d.connected("connect", name), "1 of 2 endpoints of "+name, ep1Addr+":8080 refuses connections")
	if !strings.HasSuffix(found.Fix, "or set "+setting) {
		t.Fatalf("edgeway doctor --connect has the fix %q", found.Fix)
	}
	l.must(os.WriteFile(filepath.Join(d.dir, "conf.d", "dead.toml"), []byte(setting+"\n"), 0o600))
	if out, errs, code := d.edgeway("reload"); code != 0 {
		t.Fatalf("edgeway reload ended with %d: %s%s", code, out, errs)
	}
	l.within(patience, d.shows([]string{"status"}, "healthy, with restrictions", "endpoint-checks", "the endpoint "+ep1Addr+":8080 does not answer (connection refused)"))
	l.within(patience, leaves("ep1"))
	l.throughout(2*time.Second, answers(l.node, web, "ep2"))
	l.must(d.shows([]string{"doctor"}, "warning   endpoint-checks: ", "the endpoint ")())

	l.kill(l.ep2, programDies)
	words := "connections to " + name
	l.within(patience, func() error {
		out, errs, code := d.edgeway("status")
		if code != 4 || !containsAll(out, []string{"DEGRADED", "problem   services-dead", words, "fix: ", ep1Addr + ":8080"}) {
			return fmt.Errorf("edgeway status ended with %d and does not name the dead endpoints:\n%s%s", code, out, errs)
		}
		return nil
	})
	d.degraded("services-dead")
	l.must(d.metric(`edgeway_fault{name="services-dead"}`, 1)())
	d.diagnosed("services-dead", words)
	if out, _, code := d.edgeway("explain", "--exit-code", "host", web); code != 4 || !strings.HasPrefix(out, "fail: ") {
		t.Errorf("edgeway explain ended with %d:\n%s", code, out)
	}
	l.revive(l.ep1) // as they say
	l.within(patience, d.shows([]string{"status"}, "healthy, with restrictions"))
	l.within(patience, leaves("ep2"))
	l.throughout(2*time.Second, answers(l.node, web, "ep1"))
	if out, errs, code := d.edgeway("doctor"); code != 0 {
		t.Errorf("edgeway doctor ended with %d:\n%s%s", code, out, errs)
	}
}
