// Package vmtest runs jobs in virtual machines for tests.
package vmtest

import (
	"bytes"
	"cmp"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edgeway/test/vm"
)

var tools = []string{"mmdebstrap", "apt-get", "tar"}

// Need skips the test if the host cannot run AMD64 VMs, or if -short is set. In continuous integration (CI=true), Need
// fails the test instead.
func Need(t testing.TB) {
	t.Helper()
	NeedArch(t, vm.AMD64)
}

// NeedArch is like Need, but for VMs of the given architecture.
func NeedArch(t testing.TB, arch vm.Arch) {
	t.Helper()
	skip := t.Skipf
	if os.Getenv("CI") == "true" {
		skip = t.Fatalf
	}
	if testing.Short() {
		skip("tests in a virtual machine take too long for -short")
	}
	if os.Geteuid() != 0 {
		skip("building a virtual machine requires root")
	}
	for _, tool := range append([]string{arch.Program()}, tools...) {
		if _, err := exec.LookPath(tool); err != nil {
			skip("a virtual machine requires %s, which scripts/test installs", tool)
		}
	}
}

// Run runs a job, writes its output to the test's log, and returns the output. The test fails unless the command exits
// with code 0.
func Run(t testing.TB, j vm.Job) string {
	t.Helper()
	out, exit := RunAny(t, j)
	if exit != 0 {
		t.Fatalf("%s: %q exited with code %d", j.Suite, j.Command, exit)
	}
	return out
}

// RunAny is like Run, but accepts any exit code.
func RunAny(t testing.TB, j vm.Job) (output string, exit int) {
	t.Helper()
	j.Arch = cmp.Or(j.Arch, vm.AMD64)
	NeedArch(t, j.Arch)
	start := time.Now()
	if err := vm.Prepare(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Logf("built the %s image in %.0f s", j.Suite, took.Seconds())
	}
	var out bytes.Buffer
	j.Output, j.Notes = io.MultiWriter(&out, t.Output()), t.Output()
	exit, err := vm.Run(t.Context(), j)
	if err != nil {
		t.Fatal(err)
	}
	return out.String(), exit
}

// BuildTest compiles the tests of a package into a static amd64 binary.
func BuildTest(t testing.TB, pkg string) (file string) {
	t.Helper()
	return BuildTestFor(t, vm.AMD64, pkg)
}

// BuildTestFor is like BuildTest, but for the given architecture.
func BuildTestFor(t testing.TB, arch vm.Arch, pkg string) (file string) {
	t.Helper()
	return build(t, arch, pkg, "test", "-c")
}

// Build compiles a program into a static amd64 binary.
func Build(t testing.TB, pkg string) (file string) {
	t.Helper()
	return build(t, vm.AMD64, pkg, "build", "-trimpath")
}

func build(t testing.TB, arch vm.Arch, pkg string, args ...string) string {
	t.Helper()
	NeedArch(t, arch)
	file := filepath.Join(t.TempDir(), path.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", append(args, "-o", file, pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARM=7", "GOARCH="+strings.TrimSuffix(string(arch), "hf"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return file
}
