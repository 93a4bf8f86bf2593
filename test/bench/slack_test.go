package main

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// What is measured runs with the timer slack that its unit gives it.
func TestSlackIsTheUnits(t *testing.T) {
	unit, err := os.ReadFile("../../units/edgeway.service")
	if err != nil {
		t.Fatal(err)
	}
	want := "\nTimerSlackNSec=" + unitSlack.String() + "\n"
	if !strings.Contains(string(unit), want) {
		t.Errorf("the unit has no line%s", want)
	}
}

func TestSlackIsTheChilds(t *testing.T) {
	for _, slack := range []time.Duration{time.Millisecond, 0} {
		var out strings.Builder
		cmd := exec.Command("cat", "/proc/self/timerslack_ns")
		cmd.Stdout = &out
		if err := withSlack(slack, cmd.Run); err != nil {
			t.Fatal(err)
		}
		got := strings.TrimSpace(out.String())
		if is := got == "1000000"; is != (slack != 0) {
			t.Errorf("slack %s: a child has %s ns", slack, got)
		}
	}
}
