package hostile_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables"
	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
	"edgeway/test/hostile"
)

// programs runs programs in a network namespace of its own. The thread ends with the target, and the namespace with it.
type programs struct {
	calls chan func()
	// seen are texts that were accepted: a process for each execution would be slow, and most have nothing new.
	seen map[[sha256.Size]byte]bool
}

func newPrograms(f *testing.F) *programs {
	f.Helper()
	f.Setenv("XTABLES_LOCKFILE", filepath.Join(f.TempDir(), "lock"))
	p := &programs{calls: make(chan func()), seen: map[[sha256.Size]byte]bool{}}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread()
		ready <- unix.Unshare(unix.CLONE_NEWNET)
		for call := range p.calls {
			call()
		}
	}()
	if err := <-ready; err != nil {
		f.Fatalf("new network namespace (the target needs root): %v", err)
	}
	f.Cleanup(func() { close(p.calls) })
	return p
}

// run gives a text to a program.
func (p *programs) run(text []byte, name string, args ...string) (err error) {
	done := make(chan struct{})
	p.calls <- func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Stdin = bytes.NewReader(text)
		if out, runErr := cmd.CombinedOutput(); runErr != nil {
			err = fmt.Errorf("%s: %w\n%.2000s", name, runErr, out)
		}
	}
	<-done
	return err
}

// isNew says whether a text was not accepted before. It forgets them now and then.
func (p *programs) isNew(text []byte) bool {
	sum := sha256.Sum256(text)
	if p.seen[sum] {
		return false
	}
	if len(p.seen) == 1<<16 {
		clear(p.seen)
	}
	p.seen[sum] = true
	return true
}

// objectsOf makes the objects of a fuzzer's input.
func objectsOf(stream, choices []byte) []any {
	return append(decode(stream), hostile.NewChoices(choices).Objects()...)
}

// FuzzNFTables goes the whole way from objects to nft: the plans are valid, the text of the first sync and of a change
// is plain and of bounded size, and nft and the kernel accept both (nft -c hands everything to the kernel, and takes it
// back).
func FuzzNFTables(f *testing.F) {
	p := newPrograms(f)
	check := func(script string) error { return p.run([]byte(script), "nft", "-c", "-f", "-") }
	if err := check("add table ip x\nadd chain ip x y\nadd rule ip x y goto z\n"); err == nil {
		f.Fatal("nft accepts a rule that leads nowhere: this target would see no refusal")
	}
	addSeeds(f)
	f.Fuzz(func(t *testing.T, stream, choices []byte, flags byte) {
		first, second := plans(t, objectsOf(stream, choices), flags)
		script := nftables.Render(env, proxiers.NewChange(nil, first))
		checkText(t, script, 16<<10+500*elements(first))
		change := nftables.Render(env, proxiers.NewChange(first, second))
		checkText(t, change, 16<<10+500*(elements(first)+elements(second)))
		if script += change; !p.isNew([]byte(script)) {
			return
		}
		if err := check(script); err != nil {
			t.Errorf("%v\n%s", err, script)
		}
	})
}

// FuzzIPTables is FuzzNFTables with the programs of both variants of iptables. They write, as with --test they ask no
// kernel: the first sync on empty tables, then the change.
func FuzzIPTables(f *testing.F) {
	p := newPrograms(f)
	restore := func(v string, family plan.Family, text []byte, args ...string) error {
		name := map[plan.Family]string{plan.IPv4: "iptables-", plan.IPv6: "ip6tables-"}[family] + v + "-restore"
		return p.run(text, name, args...)
	}
	variants := []string{"nft", "legacy"}
	for _, v := range variants {
		for _, family := range env.Families {
			if err := restore(v, family, []byte("*nat\n-A PREROUTING -j KUBE-NOWHERE\nCOMMIT\n")); err == nil {
				f.Fatalf("%s-restore accepts a rule that leads nowhere: this target would see no refusal", v)
			}
		}
	}
	addSeeds(f)
	f.Fuzz(func(t *testing.T, stream, choices []byte, flags byte) {
		first, second := plans(t, objectsOf(stream, choices), flags)
		for _, family := range env.Families {
			full := iptables.Render(family, env, proxiers.NewChange(nil, first))
			checkText(t, string(full), 16<<10+2500*elements(first))
			change := iptables.Render(family, env, proxiers.NewChange(first, second))
			checkText(t, string(change), 16<<10+2500*(elements(first)+elements(second)))
			if !p.isNew(append(bytes.Clone(full), change...)) {
				continue
			}
			for _, v := range variants {
				if err := restore(v, family, full); err != nil {
					t.Errorf("first sync: %v\n%s", err, full)
				} else if err := restore(v, family, change, "--noflush"); err != nil {
					t.Errorf("change: %v\n%s\n%s", err, full, change)
				}
			}
		}
	})
}
