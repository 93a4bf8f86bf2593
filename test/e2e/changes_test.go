package e2e

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
)

func (d *daemon) lines(words ...string) (n int) {
	d.t.Helper()
	log, err := os.ReadFile(d.logFile())
	d.must(err)
	for line := range strings.Lines(string(log)) {
		if containsAll(line, words) {
			n++
		}
	}
	return n
}

func TestServiceChangesAreLogged(t *testing.T) {
	t.Parallel()
	s := newLab(t).newFileDaemon()
	change := func(message string, do func()) {
		t.Helper()
		do()
		s.waitFor(longTimeout, s.logged("level=INFO", message, "service=default/shop-0"))
		if n := s.lines("service="); n != 1 {
			t.Errorf("%d lines about Services, want one: %s", n, message)
		}
		s.must(os.Truncate(s.logFile(), 0))
	}
	s.startReady()
	s.waitFor(longTimeout, s.allOpen)
	if s.lines("Services are served", "services=3", "without_endpoint=0") != 1 || s.lines("service=") > 0 {
		t.Error("the start is not one line")
	}
	s.must(os.Truncate(s.logFile(), 0))
	change("Service lost its last ready endpoint", func() {
		text, err := os.ReadFile(s.path(0))
		unready := strings.ReplaceAll(string(text), "addresses: ["+ep1Addr+"]",
			"addresses: ["+ep1Addr+"], conditions: {ready: false}")
		s.must(errors.Join(err, os.WriteFile(s.path(0), []byte(unready), 0o600)))
	})
	s.must(s.statusPrints("healthy", fmt.Sprintf("no-endpoint: Service default/shop-0: spec.ports[0]: no endpoint is ready: %s", ep1Addr))())
	change("Service has a ready endpoint", func() { s.write(0) })
	change("Service removed", func() { s.must(os.Remove(s.path(0))) })
	change("Service added", func() { s.write(0) })
	s.must(errors.Join(s.allOpen(), s.content()))
	if out, _, _ := s.edgeway("status"); strings.Contains(out, "no-endpoint") {
		t.Errorf("a Notice without a reason:\n%s", out)
	}
}
