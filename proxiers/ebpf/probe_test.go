package ebpf

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// missingFeatures returns a fault if and only if the tc program does not load. The fault names the kernel module that
// may be missing.
func TestPacketsMissingFeatures(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	lacks := missingFeatures(w.dir, true, []plan.Family{plan.IPv4})
	if without := w.proxier.shortcuts.tcErr; (len(lacks) == 0) != (without == nil) {
		t.Errorf("the probe says %v, and the load %v", lacks, without)
	}
	if err := requireFunction("nf_no_such", "bpf_no_such"); err == nil || !strings.Contains(err.Error(), "nf_no_such") {
		t.Errorf("a function that no kernel has: %v", err)
	}
}

// Linux 6.1 may deliver an IPv6 response to another connection's socket, unless early demux is off.
func TestIPv6EarlyDemuxFault(t *testing.T) {
	w := newWorld(t)
	var release unix.Utsname
	if err := unix.Uname(&release); err != nil {
		t.Fatal(err)
	}
	var major, minor int
	if _, err := fmt.Sscanf(unix.ByteSliceToString(release.Release[:]), "%d.%d", &major, &minor); err != nil {
		t.Fatal(err)
	}
	told := func() bool {
		return slices.ContainsFunc(missingFeatures(w.dir, true, both),
			func(f fault.Fault) bool { return strings.Contains(f.Fix, earlyDemux) })
	}
	if old := major < 6 || major == 6 && minor < 7; told() != old {
		t.Errorf("Linux %d.%d: told of it: %v", major, minor, told())
	}
	w.setEarlyDemux("0")
	t.Cleanup(func() { w.setEarlyDemux("1") })
	if told() {
		t.Error("told of it after the repair")
	}
}
