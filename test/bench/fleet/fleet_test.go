package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"edgeway/test/bench/kit"
)

func TestParse(t *testing.T) {
	if o, err := parse([]string{"-hosts", "3"}); err != nil || o.hosts != 3 {
		t.Errorf("got %+v, %v", o, err)
	}
	for _, args := range [][]string{
		{"-hosts", "0"},
		{"-services", "9"},
		{"-rest", "1ms"},
		{"-rate", "0"},
		{"-down", "-1s"},
		{"-wrong"},
	} {
		if _, err := parse(args); err == nil {
			t.Errorf("%q is accepted", args)
		}
	}
}

func line(stage, agent, uri string, code int, second string) string {
	return `{"kind":"Event","stage":"` + stage + `","requestURI":"` + uri + `","userAgent":"` + agent +
		`","requestReceivedTimestamp":"2026-01-02T03:04:` + second + `Z","responseStatus":{"code":` +
		string(rune('0'+code/100)) + `00}}` + "\n"
}

// The benchmark must count each request from a host once, in the second in which the API server received it. The
// benchmark must count rejected requests separately, and ignore incomplete lines and other clients' requests.
func TestRequestsAreCountedFromAuditLog(t *testing.T) {
	const watch, stream, list = "/api/v1/services?watch=true&resourceVersion=7",
		"/api/v1/services?sendInitialEvents=true&watch=true", "/api/v1/services?limit=500"
	log := filepath.Join(t.TempDir(), "audit.log")
	text := line("RequestReceived", userAgent+"a", watch, 200, "00.900000") + // before the interval
		line("RequestReceived", userAgent+"a", watch, 200, "01.500000") +
		line("ResponseComplete", userAgent+"a", watch, 200, "01.500000") +
		line("RequestReceived", userAgent+"b", stream, 200, "02.499999") +
		line("RequestReceived", userAgent+"b", list, 200, "02.500001") +
		line("ResponseComplete", userAgent+"b", list, 400, "02.500001") +
		line("RequestReceived", "kubectl", list, 200, "02.600000") +
		line("RequestReceived", userAgent+"b", watch, 200, "04.500000") + // after the interval
		`{"kind":"Eve`
	if err := os.WriteFile(log, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	all, err := readAudit(log)
	if err != nil {
		t.Fatal(err)
	}
	got := count(all, time.Date(2026, 1, 2, 3, 4, 1, 500_000_000, time.UTC), 3*time.Second)
	want := counts{all: 3, lists: 2, refused: 1, most: 2, mostLists: 1}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(counts{})); diff != "" {
		t.Error(diff)
	}
	if all[1].host != "a" || all[2].host != "b" {
		t.Errorf("hosts of %+v", all)
	}
	if err := os.WriteFile(log, []byte("{\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if all, err := readAudit(log); err == nil {
		t.Errorf("a line that is no JSON gives %+v", all)
	}
}

func TestParseProcFiles(t *testing.T) {
	stat := "42 (kube api) server) S 1 42 42 0 -1 4194560 1000 0 0 0 150 50 7 7 20 0 12 0 100 900000 25 18446744073709551615 1"
	cpu, memory, err := parseStat(stat)
	if err != nil || cpu != 2 || memory != float64(25*os.Getpagesize()) {
		t.Errorf("got %v s, %v bytes, %v", cpu, memory, err)
	}
	if _, _, err := parseStat("42 (x) S 1"); err == nil {
		t.Error("a short line is taken")
	}
	dev := "Inter-|   Receive\n face |bytes    packets\n    lo: 11 1\n  eth0: 1234 5 0\n"
	if got, err := parseReceived(dev, "eth0"); err != nil || got != 1234 {
		t.Errorf("got %v, %v", got, err)
	}
	if got, err := parseReceived(dev, "eth1"); err == nil {
		t.Errorf("a device that is not there has %v", got)
	}
}

func TestTablesMatchFigures(t *testing.T) {
	f, err := kit.Load("../results/fleet.json")
	if err != nil {
		t.Fatal(err)
	}
	r := results{f}
	text, err := os.ReadFile("../RESULTS.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.Split(string(text), "\n")
	var tables strings.Builder
	r.print(&tables)
	for _, line := range strings.Split(strings.TrimSpace(tables.String()), "\n") {
		if line != "" && !slices.Contains(shown, line) {
			t.Errorf("RESULTS.md has no %q", line)
		}
	}
}
