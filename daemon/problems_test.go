package daemon

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers/fault"
)

func problem(name, message string) fault.Fault {
	return fault.Fault{
		Object: fault.Object{Kind: "Service", Namespace: "default", Name: name}, Field: "spec",
		Message: message,
	}
}

func TestProblemIsLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	l := problemLog{logger: slog.New(slog.NewTextHandler(&out, nil))}
	lines := func() int { defer out.Reset(); return strings.Count(out.String(), "\n") }
	a, b := problem("a", "port 0"), problem("b", "taken by default/a")

	l.note([]fault.Fault{a}, []fault.Fault{b})
	if text := out.String(); !strings.Contains(text, "Service default/a") ||
		!strings.Contains(text, "taken by default/a") {
		t.Errorf("the log does not name object and fault:\n%s", text)
	}
	if n := lines(); n != 2 {
		t.Errorf("%d lines for two problems", n)
	}
	l.note([]fault.Fault{a}, []fault.Fault{b})
	if n := lines(); n != 0 {
		t.Errorf("%d lines for problems that are known", n)
	}
	l.ignoredIDs = []string{"object"}
	l.note([]fault.Fault{a}, []fault.Fault{b, {ID: "object", Severity: fault.Notice}})
	if n := lines(); n != 0 {
		t.Errorf("%d lines for an ignored notice", n)
	}
	l.note(nil, []fault.Fault{b})
	l.note([]fault.Fault{a}, []fault.Fault{b})
	if n := lines(); n != 1 {
		t.Errorf("%d lines for a problem that came back", n)
	}
}

func TestProblemLogIsBounded(t *testing.T) {
	var out bytes.Buffer
	l := problemLog{logger: slog.New(slog.NewTextHandler(&out, nil))}
	var many []fault.Fault
	for i := range 1000 {
		many = append(many, problem(fmt.Sprint(i), "port 0"))
	}
	l.note(many, nil)
	if n := strings.Count(out.String(), "\n"); n != maxProblemLines+1 {
		t.Errorf("%d lines, want %d", n, maxProblemLines+1)
	}
	if !strings.Contains(out.String(), "more=950") {
		t.Error("the log does not say how many more there are")
	}
}

// If one of many problems changes, problemLog.note processes only that problem and allocates no memory for the others.
func TestNoteCostDependsOnChange(t *testing.T) {
	l := problemLog{logger: slog.New(slog.DiscardHandler)}
	var many []fault.Fault
	for i := range 10_000 {
		many = append(many, problem(fmt.Sprintf("svc-%05d", i), "port 0"))
	}
	other := slices.Clone(many)
	other[5000].Message = "port 1"
	lists := [2][]fault.Fault{many, other}
	l.note(nil, many)
	i := 0
	if bytes := testing.Benchmark(func(b *testing.B) {
		for b.Loop() {
			i++
			l.note(nil, lists[i%2])
		}
	}).AllocedBytesPerOp(); bytes > 4096 {
		t.Errorf("%d bytes to tell one of 10,000 problems", bytes)
	}
}
