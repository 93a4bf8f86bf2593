// Package vmtest runs jobs in virtual machines for tests.
package vmtest

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"testing"
	"time"

	"edgeway/test/vm"
)

var tools = []string{"qemu-system-x86_64", "mmdebstrap", "apt-get", "tar"}

// Need skips the test if the host cannot run virtual machines, or if -short is set. In continuous integration
// (CI=true), Need fails the test instead.
func Need(t testing.TB) {
	t.Helper()
	skip := t.Skipf
	if os.Getenv("CI") == "true" {
		skip = t.Fatalf
	}
	if testing.Short() {
		skip("a virtual machine takes too long for -short")
	}
	if os.Geteuid() != 0 {
		skip("building a virtual machine requires root")
	}
	for _, tool := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			skip("a virtual machine requires %s, which scripts/test vm installs", tool)
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
	Need(t)
	start := time.Now()
	if err := vm.Prepare(t.Context(), j.Suite, j.Packages...); err != nil {
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

// BuildTest compiles the tests of a package into a static binary.
func BuildTest(t testing.TB, pkg string) (file string) {
	t.Helper()
	return build(t, pkg, "test", "-c")
}

// Build compiles a program in the same way as BuildTest.
func Build(t testing.TB, pkg string) (file string) {
	t.Helper()
	return build(t, pkg, "build", "-trimpath")
}

func build(t testing.TB, pkg string, args ...string) string {
	t.Helper()
	Need(t)
	file := filepath.Join(t.TempDir(), path.Base(pkg))
	cmd := exec.CommandContext(t.Context(), "go", append(args, "-o", file, pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", pkg, err, out)
	}
	return file
}
