package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"edgeway/test/bench/kit"
)

// The benchmark must be able to perform every measurement of every program in the test's network namespace.
func TestEveryProgramIsMeasured(t *testing.T) {
	if _, err := os.Stat(socketProxyd); err != nil {
		t.Skipf("scripts/bench-loopback installs systemd-socket-proxyd: %v", err)
	}
	if os.Getenv("EDGEWAY_LOOPBACK_INSIDE") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestEveryProgramIsMeasured$", "-test.v")
		cmd.Env = append(os.Environ(), "EDGEWAY_LOOPBACK_INSIDE=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return
	}
	o := options{
		json: filepath.Join(t.TempDir(), "loopback.json"), rounds: 1, connections: 60, streams: []int{1, 3},
		window: 50 * time.Millisecond,
	}
	var out strings.Builder
	if err := run(t.Context(), o, &out); err != nil {
		t.Fatal(err)
	}
	figures, err := kit.Load(o.json)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range o.steps() {
		for _, program := range []string{"direct", "edgeway", "socket-proxyd"} {
			if value, ok := figures.Median(kit.Key{Measure: s.name, Program: program}); !ok || value <= 0 {
				t.Errorf("%s of %s: %v, measured: %v", s.name, program, value, ok)
			}
		}
		if !strings.Contains(out.String(), "| "+string(s.name)+" | ") {
			t.Errorf("no row for %q in:\n%s", s.name, &out)
		}
	}
}
