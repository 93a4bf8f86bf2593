package ebpf

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
)

// halfVariable is the environment variable that tells an unprivileged process which part of the test to run.
// dirVariable is the environment variable that holds the path of the BPF file system.
const (
	halfVariable = "EBPF_TEST_HALF"
	dirVariable  = "EBPF_TEST_FOLDER"
	// nobody is the user ID of an unprivileged user.
	nobody = "65534"
)

// The loader needs neither root nor CAP_SYS_ADMIN, except for the tc program if nf_nat is a module. The daemon needs
// only CAP_NET_ADMIN.
func TestPrivileges(t *testing.T) {
	if half := os.Getenv(halfVariable); half != "" {
		runHalf(t, half)
		return
	}
	w := newWorld(t)
	if err := mountBPF(w.dir); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(w.dir, 65534, 65534); err != nil {
		t.Fatal(err)
	}
	runAsNobody(t, w.dir, "none", "")
	runAsNobody(t, w.dir, "sockets", "+bpf,+perfmon,+net_admin")
	runAsNobody(t, w.dir, "serve-sockets", "+net_admin")
	runAsNobody(t, w.dir, "serve-without-tc", "+net_admin")
	runAsNobody(t, w.dir, "refused", "+bpf,+perfmon,+net_admin")
	runAsNobody(t, w.dir, "load", "+bpf,+perfmon,+net_admin,+sys_admin")
	runAsNobody(t, w.dir, "serve", "+net_admin")
	w.apply(w.service(1, w.endpoints...))
	w.wantShortcut(1, "what the daemon attached", func() { w.ask("tcp4", vip(both[0], 1)) })
	w.wantTCConnections(1, "from elsewhere", func() { w.askFrom(w.other, "tcp", vip(both[0], 1)) })
}

// runAsNobody runs the current test again as an unprivileged user, in the current network namespace.
func runAsNobody(t *testing.T, dir, half, capabilities string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// An unprivileged user may be unable to read the test program's directory, so runAsNobody copies the program to
	// another directory and makes that directory readable.
	program := filepath.Join(t.TempDir(), "half")
	if out, err := exec.Command("cp", self, program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for at := program; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		if err := os.Chmod(at, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"--reuid", nobody, "--regid", nobody, "--clear-groups", "--no-new-privs", "--bounding-set=-all"}
	if capabilities != "" {
		args[len(args)-1] += "," + capabilities
		args = append(args, "--inh-caps=-all,"+capabilities, "--ambient-caps=-all,"+capabilities)
	}
	cmd := exec.CommandContext(t.Context(), "setpriv",
		append(args, program, "-test.run=^TestPrivileges$", "-test.v")...)
	cmd.Env = append(os.Environ(), halfVariable+"="+half, dirVariable+"="+dir)
	cmd.Dir = "/"
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestPrivileges") {
		t.Fatalf("as a user with %q: %v\n%s", capabilities, err, out)
	}
}

func runHalf(t *testing.T, half string) {
	dir := os.Getenv(dirVariable)
	switch half {
	case "none":
		if err := requireLoadable(dir); !errors.Is(err, proxiers.ErrUnsupported) ||
			!strings.Contains(err.Error(), "edgeway-bpf.service") {
			t.Errorf("the probe says %v", err)
		}
		if _, err := load(dir, sizes()["normal"], true); !errors.Is(err, unix.EPERM) ||
			!strings.Contains(err.Error(), "edgeway-bpf.service") {
			t.Errorf("the load says %v", err)
		}
	case "sockets":
		without, err := load(dir, sizes()["normal"], false)
		if err := errors.Join(without, err); err != nil {
			t.Fatal(err)
		}
	case "serve-sockets":
		w := &world{T: t, dir: dir, env: silentEnv(t)}
		w.env.Settings = nil
		w.start()
		defer w.stop()
		w.sync(proxiers.NewChange(nil, emptyPlan()))
		if err := w.proxier.Faults(); err != nil {
			t.Error(err)
		}
	case "serve-without-tc": // ebpf.tc is true, but the tc program is not loaded
		w := &world{T: t, dir: dir, env: silentEnv(t)}
		w.start()
		defer w.stop()
		w.sync(proxiers.NewChange(nil, emptyPlan()))
		down := w.proxier.Faults()
		if len(down) != 1 || !strings.Contains(down[0].Message, "systemctl restart edgeway") {
			t.Errorf("status says %v", down)
		}
		if lacks := missingFeatures(dir, true, both[:1]); len(lacks) != 1 || lacks[0].Fix != tcFix {
			t.Errorf("the doctor says %v", lacks)
		}
	case "refused":
		without, err := load(dir, sizes()["normal"], true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat("/sys/kernel/btf/nf_nat"); err != nil {
			if without != nil {
				t.Errorf("nf_nat is built in, and the tc program was not loaded: %v", without)
			}
			return
		}
		if without == nil || !strings.Contains(without.Error(), "CAP_SYS_ADMIN") ||
			!strings.Contains(without.Error(), tcFix) {
			t.Errorf("the load of the tc program says %v", without)
		}
	case "load":
		without, err := load(dir, sizes()["normal"], true)
		if err := errors.Join(without, err); err != nil {
			t.Fatal(err)
		}
	case "serve":
		if err := probeHost(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
		w := &world{T: t, dir: dir, env: silentEnv(t)}
		w.start()
		defer w.stop()
		w.sync(proxiers.NewChange(nil, emptyPlan()))
		if err := w.proxier.shortcuts.raise(); err != nil { // a second time, while the programs are attached
			t.Error(err)
		}
		if err := w.proxier.shortcuts.tcErr; err != nil || len(w.proxier.shortcuts.attacher.attachments) == 0 {
			t.Errorf("the tc program is at %d devices: %v", len(w.proxier.shortcuts.attacher.attachments), err)
		}
		if _, err := w.proxier.shortcuts.counts(); err != nil {
			t.Error(err)
		}
		w.proxier.shortcuts.destroyOrphans()
		if err := unpinLinks(filepath.Join(dir, layout)); err != nil {
			t.Error(err)
		}
		w.sync(proxiers.NewChange(nil, emptyPlan()))
		if err := w.proxier.Maintain(context.Background()); err != nil {
			t.Error(err)
		}
	}
}
