package host

import (
	"regexp"
	"strings"
	"testing"
)

// result is the result of a test case, which is a subtest in the output of a test program that ran with -test.v.
type result struct {
	name, verdict, seconds string
	lines                  []string
}

func (r *result) report(t *testing.T) {
	t.Logf("%s: %s, %s s in the virtual machine\n%s", r.name, r.verdict, r.seconds, strings.Join(r.lines, "\n"))
	// A skipped test case counts as a failure, because the virtual machine has all necessary programs.
	if r.verdict != "PASS" {
		t.Error(r.verdict)
	}
}

var (
	beginning = regexp.MustCompile(`^=== (?:RUN|NAME|CONT)\s+(\S+)$`)
	ending    = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)$`)
)

// parse returns the results of the test cases in the order of the output. If a test case did not finish (for example
// after a panic), its verdict is neither PASS nor FAIL.
func parse(output string) []*result {
	var all []*result
	byName := map[string]*result{}
	var current *result
	for line := range strings.Lines(output) {
		line = strings.TrimRight(line, "\r\n")
		if m := beginning.FindStringSubmatch(line); m != nil {
			_, name, isCase := strings.Cut(m[1], "/")
			if current = byName[m[1]]; current == nil && isCase {
				current = &result{name: name, verdict: "did not end", seconds: "?"}
				byName[m[1]] = current
				all = append(all, current)
			}
			continue
		}
		if m := ending.FindStringSubmatch(line); m != nil {
			if r := byName[m[2]]; r != nil {
				r.verdict, r.seconds = m[1], m[3]
			}
			current = nil
			continue
		}
		if current != nil {
			current.lines = append(current.lines, line)
		}
	}
	return all
}
