package ebpf

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// restartWithTC restarts the backend with a new value for the tc setting, as a configuration reload does.
func (w *world) restartWithTC(tc bool) {
	w.Helper()
	next := w.plan
	w.stop()
	w.env.Settings = map[string]any{"tc": tc}
	w.start()
	w.sync(proxiers.NewChange(nil, next))
}

// countDevices counts the devices that the backend's tc program is attached to.
func (w *world) countDevices() (n int) {
	w.Helper()
	devices, err := netlink.LinkList()
	if err != nil {
		w.Fatal(err)
	}
	for _, d := range devices {
		index := d.Attrs().Index
		filters, _ := filtersAt(index) // an error means that the device has no clsact qdisc
		n += len(filters)
		result, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
		if err == nil {
			n += len(result.Programs)
		} else if !errors.Is(err, ebpf.ErrNotSupported) && !errors.Is(err, unix.EINVAL) { // Linux before 6.6 lacks tcx
			w.Fatal(err)
		}
	}
	return n
}

// Changing the tc setting attaches or detaches the tc program. While the setting is off, the tc program is neither
// attached nor pinned, and Faults reports no fault.
func TestSwitchTC(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	w.needsPackets()
	outside := w.plan.Decide(plan.Packet{
		Protocol: plan.TCP, Src: w.other.Addrs[0], Dst: vip(plan.IPv4, 1),
		InInterface: w.other.Name,
	})
	for _, tc := range []bool{true, false, true} {
		w.restartWithTC(tc)
		taken, way := map[bool]uint64{true: 1}[tc], map[bool]string{true: "by tc", false: "ebpf.tc is false"}[tc]
		w.wantTCConnections(taken, way, func() { w.askFrom(w.other, "tcp", vip(plan.IPv4, 1)) })
		w.wantShortcut(1, way, func() { w.ask("tcp", vip(plan.IPv4, 1)) })
		if got := w.proxier.explainPath(outside, false); !strings.Contains(got, way) {
			t.Errorf("tc = %v: a connection from elsewhere goes %q", tc, got)
		}
		if down := w.proxier.Faults(); down != nil {
			t.Errorf("tc = %v: %v", tc, down)
		}
		if n := w.countDevices(); (n > 0) != tc {
			t.Errorf("tc = %v: %d programs are at the devices", tc, n)
		}
		if lacks := missingFeatures(w.dir, tc, []plan.Family{plan.IPv4}); len(lacks) > 0 {
			t.Errorf("tc = %v: the host lacks %v", tc, lacks)
		}
		for _, path := range []string{
			filepath.Join(programsDir(w.dir), packetsProgPackets),
			filepath.Join(w.dir, layout, packetsMapPodRanges),
		} {
			if _, err := os.Stat(path); (err == nil) != tc || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("tc = %v: %s: %v", tc, path, err)
			}
		}
	}
}

// On Linux before 6.6, a killed daemon leaves its filters on the devices. If tc is off, the daemon removes the filters
// when it starts again.
func TestFiltersOfKilledDaemon(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	w.needsPackets()
	l, err := netlink.LinkByName(w.other.Name)
	if err != nil {
		t.Fatal(err)
	}
	program, err := w.proxier.shortcuts.attacher.program.Clone()
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	next := w.plan
	w.stop()
	if _, err := attachFilter(l.Attrs().Index, program); err != nil {
		t.Fatal(err)
	}
	w.env.Settings = nil
	w.start()
	w.sync(proxiers.NewChange(nil, next))
	if n := w.countDevices(); n != 0 {
		t.Errorf("%d programs are at the devices", n)
	}
	w.wantTCConnections(0, "tc is off", func() { w.askFrom(w.other, "tcp", vip(plan.IPv4, 1)) })
}
