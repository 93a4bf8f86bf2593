package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

// isolatedVariable is the environment variable that marks a test process with its own network namespace.
const isolatedVariable = "NETLAB_ISOLATED"

// Isolate runs the tests of m in a child process with its own network namespace, and returns the exit code. All threads
// of the child process are in the new namespace, so goroutines and child processes of the code under test cannot reach
// the machine's network. TestMain must call Isolate:
//
//	func TestMain(m *testing.M) { os.Exit(netlab.Isolate(m)) }
func Isolate(m *testing.M) int {
	PeerMain()
	if os.Getenv(isolatedVariable) != "" {
		return m.Run()
	}
	self, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "path of the test binary:", err)
		return 1
	}
	cmd := exec.Command(self, os.Args[1:]...)
	cmd.Env = append(os.Environ(), isolatedVariable+"=1")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	err = cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		return exit.ExitCode()
	case err != nil:
		fmt.Fprintln(os.Stderr, "cannot run the tests in a separate network namespace (requires root):", err)
		return 1
	}
	return 0
}
