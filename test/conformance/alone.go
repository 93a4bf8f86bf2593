package conformance

import (
	"flag"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
)

// aloneVariable of the environment names the test that a process of its own runs.
const aloneVariable = "CONFORMANCE_ALONE"

// alone runs the rest of a test in a process and a network namespace of its own, beside others that do
// so: the suites of several backends take little longer than that of one, as they mostly wait. It reports
// false in that process, where the test goes on.
func alone(t *testing.T) bool {
	if os.Getenv(aloneVariable) == t.Name() {
		return false
	}
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	pattern := "^" + t.Name() + "$"
	if _, parts, some := strings.Cut(flag.Lookup("test.run").Value.String(), "/"); some {
		pattern += "/" + parts
	}
	args := []string{"-test.run=" + pattern}
	for _, name := range []string{"test.skip", "test.timeout", "test.v"} {
		args = append(args, "-"+name+"="+flag.Lookup(name).Value.String())
	}
	cmd := exec.CommandContext(t.Context(), self, args...)
	cmd.Env = append(os.Environ(), aloneVariable+"="+t.Name())
	cmd.Stdout, cmd.Stderr = t.Output(), t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	runtime.LockOSThread() // the signal comes when the thread dies that started the process
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		t.Errorf("%s in a process of its own: %v", t.Name(), err)
	}
	return true
}
