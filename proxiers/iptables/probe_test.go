package iptables

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
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

// Without CAP_SYS_ADMIN, as under systemd, there is no network namespace to try rules in.
func TestProbeWithoutPrivilege(t *testing.T) {
	newHost(t)
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	caps[0].Effective &^= 1 << unix.CAP_SYS_ADMIN
	if err := unix.Capset(&header, &caps[0]); err != nil { // of this thread, which ends with the test
		t.Fatal(err)
	}
	before := nftRuleset(t)
	for _, b := range Backends() {
		if err := b.Probe(t.Context()); err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
	if after := nftRuleset(t); after != before {
		t.Errorf("before %q, after %q", before, after)
	}
	if got := ruleset(t, legacy, plan.IPv4); strings.Contains(got, probeChain) {
		t.Errorf("left:\n%s", got)
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
