package hostile_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables"
	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
	"edgeway/test/hostile"
)

// programRunner runs external programs in a network namespace that exists until the fuzz target ends.
type programRunner struct {
	calls chan func()
	// hashes holds the hashes of the nft scripts, or of the plan digests, that the fuzz target has already tested. Most
	// inputs produce no new script or plan, and starting a process for each input would be slow.
	hashes map[[sha256.Size]byte]bool
}

func newPrograms(f *testing.F) *programRunner {
	f.Helper()
	f.Setenv("XTABLES_LOCKFILE", filepath.Join(f.TempDir(), "lock"))
	p := &programRunner{calls: make(chan func()), hashes: map[[sha256.Size]byte]bool{}}
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

func (p *programRunner) do(f func(context.Context)) {
	done := make(chan struct{})
	p.calls <- func() {
		defer close(done)
		// The timeout only ends a program that hangs. On a busy machine, nft can take minutes for a large script.
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Minute)
		defer cancel()
		f(ctx)
	}
	<-done
}

func (p *programRunner) run(text, name string, args ...string) (out string, err error) {
	p.do(func(ctx context.Context) {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Stdin = strings.NewReader(text)
		raw, runErr := cmd.CombinedOutput()
		if out = string(raw); runErr != nil {
			err = fmt.Errorf("%s: %w\n%.2000s", name, runErr, out)
		}
	})
	return out, err
}

// isNew reports whether the fuzz target has not yet tested the given nft script or plan digest. isNew clears the hashes
// whenever there are 65,536 of them.
func (p *programRunner) isNew(text string) bool {
	sum := sha256.Sum256([]byte(text))
	if p.hashes[sum] {
		return false
	}
	if len(p.hashes) == 1<<16 {
		clear(p.hashes)
	}
	p.hashes[sum] = true
	return true
}

func objectsOf(stream, choices []byte) []any {
	return append(decode(stream), hostile.NewChoices(choices).Objects()...)
}

// FuzzNFTables turns objects into nft commands. The commands for the first sync and for a change must be plain text of
// bounded size. Both nft and the kernel must accept the commands. With -c, nft sends the commands to the kernel, and
// the kernel rolls back the transaction.
func FuzzNFTables(f *testing.F) {
	p := newPrograms(f)
	check := func(script string) error {
		_, err := p.run(script, "nft", "-c", "-f", "-")
		return err
	}
	if err := check("add table ip x\nadd chain ip x y\nadd rule ip x y goto z\n"); err == nil {
		f.Fatal("nft accepts a rule that leads nowhere: this target would see no refusal")
	}
	addSeeds(f)
	f.Fuzz(func(t *testing.T, stream, choices []byte, flags byte) {
		first, second := plans(t, objectsOf(stream, choices), flags)
		script := nftables.Render(env, proxiers.NewChange(nil, first))
		verifyText(t, script, 16<<10+500*elements(first))
		change := nftables.Render(env, proxiers.NewChange(first, second))
		verifyText(t, change, 16<<10+500*(elements(first)+elements(second)))
		if script += change; !p.isNew(script) {
			return
		}
		if err := check(script); err != nil {
			t.Errorf("%v\n%s", err, script)
		}
	})
}

// FuzzIPTables is like FuzzNFTables, but for both iptables variants. The fuzz target writes to the kernel, because with
// --test, the iptables programs do not consult the kernel. For each input, the test replaces the previous input's rules
// in a full sync, and then applies a change. After the change, the rules must be plain text of bounded size.
func FuzzIPTables(f *testing.F) {
	p := newPrograms(f)
	backends := map[string]proxiers.Proxier{}
	for _, c := range iptables.Components() {
		if c.New == nil {
			continue
		}
		p.do(func(ctx context.Context) {
			backend, err := c.New(ctx, env)
			if err != nil {
				f.Fatal(err)
			}
			backends[c.Name] = backend
		})
		f.Cleanup(func() { _ = backends[c.Name].Close() }) // the test deletes the namespace anyway
	}
	addSeeds(f)
	f.Fuzz(func(t *testing.T, stream, choices []byte, flags byte) {
		first, second := plans(t, objectsOf(stream, choices), flags)
		if !p.isNew(planDigest(first) + "then" + planDigest(second)) {
			return
		}
		for name, backend := range backends {
			for _, change := range []proxiers.Change{
				proxiers.NewChange(nil, first),
				proxiers.NewChange(first, second),
			} {
				p.do(func(ctx context.Context) {
					if err := backend.Apply(ctx, change); err != nil {
						t.Errorf("%s: %v", name, err)
					}
				})
			}
			for _, program := range []string{name + "-save", strings.Replace(name, "ip", "ip6", 1) + "-save"} {
				out, err := p.run("", program)
				if err != nil {
					t.Error(err)
				}
				verifyText(t, out, 16<<10+2500*elements(second))
			}
		}
	})
}

// planDigest returns a string that identifies a plan.
func planDigest(p *plan.Plan) string {
	var out strings.Builder
	fmt.Fprintf(&out, "%+v", *p.Node)
	for _, sp := range p.Services {
		out.Write(sp.Digest[:])
	}
	return out.String()
}
