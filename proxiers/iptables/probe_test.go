package iptables

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"edgeway/proxiers"
)

func TestProbeChangesNothing(t *testing.T) {
	newHost(t)
	before := nftRuleset(t) + registeredTables(t)
	for _, b := range Backends() {
		if err := b.Probe(t.Context()); err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
	if after := nftRuleset(t) + registeredTables(t); after != before {
		t.Errorf("before %q, after %q", before, after)
	}
}

func TestProbeNamesWhatIsMissing(t *testing.T) {
	eachVariant(t, func(t *testing.T, v variant) {
		// The programs look for extensions in this directory.
		dir := t.TempDir()
		from := extensionDir(t)
		entries, err := os.ReadDir(from)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if strings.Contains(e.Name(), "statistic") || strings.Contains(e.Name(), "MASQUERADE") {
				continue
			}
			if err := os.Symlink(from+"/"+e.Name(), dir+"/"+e.Name()); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("XTABLES_LIBDIR", dir)
		err = probe(t.Context(), v)
		if !errors.Is(err, proxiers.ErrUnsupported) || !strings.Contains(err.Error(), "match statistic, target MASQUERADE:") {
			t.Errorf("got %v", err)
		}
		t.Log(err)
	})
}

func extensionDir(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "find", "/usr/lib", "-name", "libxt_statistic.so").Output()
	path := strings.TrimSpace(string(out))
	if err != nil || path == "" {
		t.Fatalf("extensions of iptables: %v, %q", err, path)
	}
	return strings.TrimSuffix(path, "/libxt_statistic.so")
}
