package ebpf

import (
	"net"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"edgeway/proxiers/plan"
)

// Other BPF programs at the same hook run regardless of whether they were attached before or after Edgeway's programs,
// and keep running after the test has removed Edgeway's programs.
func TestForeignPrograms(t *testing.T) {
	w := newWorld(t)
	first := attachForeignProgram(t)
	w.apply(w.service(1, w.endpoints...))
	second := attachForeignProgram(t)
	w.wantShortcut(1, "beside others", func() { w.ask("tcp", vip(plan.IPv4, 1)) })
	if a, b := first(), second(); a == 0 || b == 0 {
		t.Errorf("the foreign programs ran %d and %d times", a, b)
	}
	w.cleanUp()
	before := first()
	if c, err := net.DialTimeout("tcp", netip.AddrPortFrom(w.endpoints[0].Addr(vip(plan.IPv4, 1).Addr()),
		endpointPort).String(), patience); err == nil {
		_ = c.Close()
	}
	if first() == before {
		t.Error("the foreign program does not run any more")
	}
}

// countingProgram returns a BPF program with the given result, and a function that returns how many times the program
// has run.
func countingProgram(
	t *testing.T, kind ebpf.ProgramType, at ebpf.AttachType, result int32,
) (runs func() uint64, _ *ebpf.Program) {
	t.Helper()
	m, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	p, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: kind, AttachType: at, License: "GPL",
		Instructions: asm.Instructions{
			asm.Mov.Imm(asm.R1, 0),
			asm.StoreMem(asm.RFP, -4, asm.R1, asm.Word),
			asm.Mov.Reg(asm.R2, asm.RFP),
			asm.Add.Imm(asm.R2, -4),
			asm.LoadMapPtr(asm.R1, m.FD()),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, "out"),
			asm.Mov.Imm(asm.R1, 1),
			asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
			asm.Mov.Imm(asm.R0, result).WithSymbol("out"),
			asm.Return(),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	return func() (n uint64) {
		if err := m.Lookup(uint32(0), &n); err != nil {
			t.Fatal(err)
		}
		return n
	}, p
}

// attachForeignProgram attaches a BPF program that counts calls to connect(2).
func attachForeignProgram(t *testing.T) (runs func() uint64) {
	t.Helper()
	runs, p := countingProgram(t, ebpf.CGroupSockAddr, ebpf.AttachCGroupInet4Connect, 1)
	root, err := findRoot("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	l, err := link.AttachCgroup(link.CgroupOptions{Path: root, Attach: ebpf.AttachCGroupInet4Connect, Program: p})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return runs
}
