package ebpf

import (
	"strings"
	"testing"
)

// The probe agrees with the load, and names the module that may help.
func TestPacketsLack(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	if lack, without := packetsLack(), w.proxier.shortcuts.without; (lack == nil) != (without == nil) {
		t.Errorf("the probe says %v, and the load %v", lack, without)
	}
	if err := lacksFunction("nf_no_such", "bpf_no_such"); err == nil || !strings.Contains(err.Error(), "modprobe nf_no_such") {
		t.Errorf("a function that no kernel has: %v", err)
	}
}
