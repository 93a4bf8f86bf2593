package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// lists returns an error unless `edgeway services` prints a line that starts with the given columns and contains all of
// the words.
func (s *fileDaemon) lists(columns []string, words ...string) func() error {
	return func() error {
		out, errs, code := s.edgeway("services", "default")
		for line := range strings.Lines(out) {
			fields := strings.Fields(line)
			lacks := func(w string) bool { return !strings.Contains(line, w) }
			if len(fields) >= len(columns) && slices.Equal(fields[:len(columns)], columns) &&
				!slices.ContainsFunc(words, lacks) {
				return nil
			}
		}
		return fmt.Errorf(
			"edgeway services ended with %d and lists no %q with %q:\n%s%s",
			code,
			columns,
			words,
			out,
			errs,
		)
	}
}

// As soon as the daemon is ready, `edgeway services` must list each Service with its endpoints, or with the reason that
// it has no endpoints.
func TestServicesAreListed(t *testing.T) {
	t.Parallel()
	s := newLab(t).newFileDaemon()
	if out, errs, code := s.edgeway(
		"status",
		"--wait=300ms",
	); code != 4 || out != "" ||
		!strings.Contains(errs, "not running") {
		t.Errorf("status --wait without a daemon ended with %d:\n%s%s", code, out, errs)
	}
	manifest, err := os.ReadFile(s.path(1))
	s.must(err)
	unready := strings.Replace(
		string(manifest),
		"addresses: ["+ep1Addr+"]",
		"addresses: ["+ep1Addr+"], conditions: {ready: false}",
		1,
	)
	s.must(os.WriteFile(s.path(1), []byte(unready), 0o600))
	s.must(
		os.WriteFile(s.path(2), []byte(strings.Replace(string(manifest), "shop-1", "shop-2", -1)), 0o600),
	) // shop-2 has the same address as shop-1

	began := time.Now()
	s.start()
	if out, errs, code := s.edgeway("status", "--wait"); code != 0 || !strings.Contains(out, ": healthy") {
		t.Fatalf("status --wait ended with %d after %s:\n%s%s", code, time.Since(began), out, errs)
	}
	s.must(s.open(0)())
	s.must(s.lists([]string{"default/shop-0", "10.97.0.10", "80:30080/TCP", "1/1", "ok"})())
	s.must(
		s.lists(
			[]string{"default/shop-1", "10.97.0.11", "80:30081/TCP", "0/1", "no", "ready", "endpoint:"},
			"no endpoint is ready",
		)(),
	)
	s.must(
		s.lists(
			[]string{"default/shop-2", "10.97.0.11", "80:30081/TCP", "0/1", "left", "out:"},
			"belongs to Service default/shop-1",
		)(),
	)

	if out, errs, code := s.edgeway(
		"services",
		"--problems",
		"-o",
		"name",
	); code != 0 ||
		out != "default/shop-1\ndefault/shop-2\n" {
		t.Errorf("services --problems ended with %d:\n%s%s", code, out, errs)
	}
	out, errs, code := s.edgeway("services", "default/shop-0", "-o", "json")
	var list struct {
		APIVersion, Kind string
		Items            []struct {
			Name, Source, State string
			Ready, All          int
		}
	}
	if err := json.Unmarshal(
		[]byte(out),
		&list,
	); err != nil || code != 0 || len(list.Items) != 1 ||
		list.Items[0].Source != s.path(0)+":1" {
		t.Errorf("services -o json ended with %d, %v:\n%s%s", code, err, out, errs)
	}
	if out, errs, code := s.edgeway(
		"services",
		"default/shop-9",
	); code != 1 || out != "" ||
		!strings.Contains(errs, "does not exist") {
		t.Errorf("an unknown Service ended with %d:\n%s%s", code, out, errs)
	}

	s.write(1)
	s.write(2)
	s.waitFor(longTimeout, s.lists([]string{"default/shop-1", "10.97.0.11", "80:30081/TCP", "1/1", "ok"}))
	s.waitFor(longTimeout, s.lists([]string{"default/shop-2", "10.97.0.12", "80:30082/TCP", "1/1", "ok"}))
	s.must(
		os.WriteFile(
			s.path(0),
			[]byte("apiVersion: v1\nkind: Service\nmetadata: {name: shop-0}\nspec: {ports: [{port: 80}]}\n"),
			0o600,
		),
	)
	s.waitFor(longTimeout, func() error {
		if out, errs, code := s.edgeway("services"); code != 0 || !strings.Contains(out, s.path(0)+":4") {
			return fmt.Errorf("services ended with %d and does not name the document:\n%s%s", code, out, errs)
		}
		return nil
	})
}
