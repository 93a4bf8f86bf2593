package ebpf

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"edgeway/proxiers/plan"
)

// The backend attaches the tc program to new devices, but not to bridge ports. If another program detaches the tc
// program from a device, the backend reattaches it.
func TestPacketsFollowDevices(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	w.needsPackets()
	has := func(name string) bool {
		l, err := netlink.LinkByName(name)
		if err != nil {
			t.Fatal(err)
		}
		w.proxier.shortcuts.mu.Lock()
		defer w.proxier.shortcuts.mu.Unlock()
		a := w.proxier.shortcuts.attacher.attachments[l.Attrs().Index]
		return a != nil && a.isAttached(w.proxier.shortcuts.attacher.id)
	}
	wants := func(name string, want bool) {
		t.Helper()
		for deadline := time.Now().Add(patience); has(name) != want; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("the program is at %s: %v", name, !want)
			}
		}
	}
	ip := func(line string) {
		t.Helper()
		if out, err := w.lab.Node.Command(t.Context(), "ip", strings.Fields(line)...).CombinedOutput(); err != nil {
			t.Fatalf("ip %s: %v: %s", line, err, out)
		}
	}
	ip("link add late1 type veth peer name late2")
	ctx := context.WithoutCancel(t.Context()) // t.Context is canceled before the cleanup runs
	t.Cleanup(func() { _ = w.lab.Node.Command(ctx, "ip", "link", "del", "late2").Run() })
	wants("late1", true)
	wants("late2", true)
	ip("link add name latebr type bridge")
	ip("link set late1 master latebr")
	wants("late1", false)
	wants("latebr", true)
	ip("link del latebr")
	wants("late1", true)
	w.removeFromDevice("late2")
	wants("late2", true)
}

// After a failure, the backend attaches the tc program again even if the plan does not change.
func TestPacketsAttachmentIsRetried(t *testing.T) {
	w := newWorld(t)
	w.apply(w.service(1, w.endpoints...))
	w.needsPackets()
	s := w.proxier.shortcuts
	s.mu.Lock()
	s.config.Packets, s.attacher.node = 0, nil
	err := s.configure(s.config)
	s.setTCErr(errors.New("a failure"))
	s.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	again := func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.tcErr == nil }
	for deadline := time.Now().Add(patience); !again(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nobody tried again")
		}
	}
	w.wantTCConnections(1, "after the failure", func() { w.askFrom(w.other, "tcp", vip(plan.IPv4, 1)) })
}

// removeFromDevice detaches the tc program from a device to simulate a change by another program.
func (w *world) removeFromDevice(name string) {
	w.Helper()
	l, err := netlink.LinkByName(name)
	if err != nil {
		w.Fatal(err)
	}
	w.proxier.shortcuts.mu.Lock()
	defer w.proxier.shortcuts.mu.Unlock()
	switch a := w.proxier.shortcuts.attacher.attachments[l.Attrs().Index].(type) {
	case *deviceLink:
		err = a.Detach()
	case *deviceFilter:
		err = netlink.QdiscDel(&netlink.GenericQdisc{QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: l.Attrs().Index,
			Handle:    netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT,
		}, QdiscType: "clsact"})
	default:
		w.Fatalf("%s has no program", name)
	}
	if err != nil {
		w.Fatal(err)
	}
}
