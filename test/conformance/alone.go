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

const aloneVariable = "CONFORMANCE_ALONE"

// isolate runs a test in a separate process and network namespace, in parallel with other isolated tests. The tests
// mostly wait, so running several tests in parallel takes little longer than running one. In the separate process,
// isolate returns false, and the test continues.
func isolate(t *testing.T) bool {
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
	runtime.LockOSThread() // the kernel sends the Pdeathsig signal when the forking thread exits
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		t.Errorf("%s failed in a separate process: %v", t.Name(), err)
	}
	return true
}
