package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/daemon/control"
	"edgeway/daemon/health"
	"edgeway/proxiers/fault"
)

// runOnTerminal runs a command on a terminal with the given number of columns, and returns the terminal's output.
func runOnTerminal(t *testing.T, columns uint16, args ...string) string {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip(err)
	}
	defer master.Close()
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(terminal.Fd()), unix.TIOCSWINSZ,
		&unix.Winsize{Col: columns, Row: 24}); err != nil {
		t.Fatal(err)
	}
	var errs strings.Builder
	execute(t.Context(), args, terminal, &errs)
	terminal.Close()
	var out strings.Builder
	for buf := make([]byte, 4096); ; {
		n, err := master.Read(buf)
		out.Write(buf[:n])
		if err != nil { // EIO means that the process closed the terminal
			return strings.ReplaceAll(out.String(), "\r\n", "\n") + errs.String()
		}
	}
}

// On a terminal, a command colors verdicts and wraps lines to the terminal's width. If stdout is not a terminal, the
// output contains neither colors nor wrapped lines.
func TestColourAndWidth(t *testing.T) {
	status := control.Status{Report: health.Report{
		Healthy: true, Ready: true, NodeEligible: true,
		Faults: []fault.Fault{
			{ID: "clock", Severity: fault.Warning, Message: strings.Repeat("word ", 60)},
		},
	}}
	config := startFakeDaemon(t, status)
	for _, c := range []struct {
		columns   uint16
		flag, env string
		color     bool
		widest    int
	}{
		{200, "auto", "", true, 80},
		{60, "auto", "", true, 60},
		{200, "auto", "1", false, 80},
		{200, "never", "", false, 80},
		{200, "always", "1", true, 80},
	} {
		t.Setenv("NO_COLOR", c.env)
		t.Setenv("TERM", "xterm")
		out := runOnTerminal(t, c.columns, "status", "--color", c.flag, "--config", config)
		color := strings.Contains(out, "\x1b[33medgeway : healthy,\x1b[0m with restrictions\n") &&
			strings.Contains(out, "  \x1b[33mwarning\x1b[0m   clock: ")
		if color != c.color || color != strings.Contains(out, "\x1b") {
			t.Errorf("%+v: colours %t:\n%q", c, color, out)
		}
		widest := 0
		for line := range strings.Lines(strings.NewReplacer("\x1b[33m", "", "\x1b[0m", "").Replace(out)) {
			widest = max(widest, len(line)-1)
		}
		if widest > c.widest || widest < c.widest-10 {
			t.Errorf("%+v: the widest line has %d columns:\n%s", c, widest, out)
		}
	}
	_, out, _ := run(t, "status", "--config", config)
	if strings.Contains(out, "\x1b") || !strings.Contains(out, "clock: "+status.Faults[0].Message[:200]) {
		t.Errorf("a program gets %q", out)
	}
	if _, out, _ = run(t, "status", "--color=always", "--config", config); !strings.Contains(out, "\x1b[33m") {
		t.Errorf("--color=always prints no colour: %q", out)
	}
	if code, _, errs := run(t, "status", "--color=red", "--config", config); code != exitUsage {
		t.Errorf("--color=red ends with %d: %s", code, errs)
	}
}
