package ebpf

import (
	"strings"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// A ServicePort's counter survives restarts and endpoint changes. The backend deletes the counter together with the
// ServicePort.
func TestServiceConnectionCounter(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...), w.service(2, w.endpoints...))
	w.needsPackets()
	wants := func(n int, counted string) {
		t.Helper()
		d := w.plan.Decide(plan.Packet{Protocol: plan.TCP, Src: netlab.NodeAddr4, Dst: vip(plan.IPv4, n)})
		if got := w.proxier.explainPath(d, false); !strings.HasSuffix(got, counted) {
			t.Errorf("Service %d: %q, not %q", n, got, counted)
		}
	}
	const none = "the endpoint's address"
	wants(1, none)
	w.ask("tcp", vip(plan.IPv4, 1))
	w.ask("tcp", vip(plan.IPv4, 1))
	w.ask("tcp", vip(plan.IPv6, 1))
	w.askFrom(w.other, "tcp", vip(plan.IPv4, 1))
	wants(1, "; connections to the Service port that used the shortcut: 3")
	wants(2, none)

	next := w.plan
	w.stop()
	w.start()
	w.sync(proxiers.NewChange(nil, next))
	w.apply(w.service(1, w.endpoints[0]), w.service(2, w.endpoints...))
	wants(1, "; connections to the Service port that used the shortcut: 3")

	w.apply(w.service(2, w.endpoints...))
	w.apply(w.service(1, w.endpoints...), w.service(2, w.endpoints...))
	wants(1, none)
	w.ask("tcp", vip(plan.IPv4, 1))
	next = w.plan
	w.stop() // the plan drops the Service while the daemon is stopped
	w.start()
	w.apply(w.service(2, w.endpoints...))
	if have := w.read().taken; len(have) != 0 {
		t.Errorf("counts of nothing: %v", have)
	}
	w.sync(proxiers.NewChange(w.plan, next))
	wants(1, none)
}
