package iptables

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
	"edgeway/test/iptablestest"
)

func TestProbeChangesNothing(t *testing.T) {
	iptablestest.NewHost(t)
	before := fmt.Sprint(iptablestest.NFTRuleset(t), registeredTables(t))
	for _, b := range variantComponents() {
		if err := b.Probe(t.Context()); err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
	if after := fmt.Sprint(iptablestest.NFTRuleset(t), registeredTables(t)); after != before {
		t.Errorf("before %q, after %q", before, after)
	}
}

// Without CAP_SYS_ADMIN, as in the packaged systemd service, the probe cannot create a network namespace for its rules.
func TestProbeWithoutPrivilege(t *testing.T) {
	iptablestest.NewHost(t)
	dropCapability(t, unix.CAP_SYS_ADMIN)
	before := iptablestest.NFTRuleset(t)
	for _, b := range variantComponents() {
		if err := b.Probe(t.Context()); err != nil {
			t.Errorf("%s: %v", b.Name, err)
		}
	}
	if after := iptablestest.NFTRuleset(t); after != before {
		t.Errorf("before %q, after %q", before, after)
	}
	if got := iptablestest.Ruleset(t, xtables.Legacy, plan.IPv4); strings.Contains(got, probeChain) {
		t.Errorf("left:\n%s", got)
	}
}

// dropCapability removes a capability from this thread, which exits after the test. A program that root starts regains
// all capabilities.
func dropCapability(t *testing.T, number uint) {
	t.Helper()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	caps[0].Effective &^= 1 << number
	if err := unix.Capset(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
}

// Choose succeeds even if the process lacks permission to read iptables-legacy's rules, as in the packaged systemd
// service.
func TestUnreadableLegacyRules(t *testing.T) {
	iptablestest.NewHost(t)
	iptablestest.Run(t, "", "iptables-legacy", "-t", xtables.NAT, "-A", "OUTPUT", "-j", "ACCEPT")
	dropCapability(t, unix.CAP_NET_RAW)
	if names, err := xtables.Tables(xtables.Legacy, plan.IPv4); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("tables %q, %v; want that it is not permitted", names, err)
	}
	if v, err := xtables.Choose(t.Context()); err != nil {
		t.Errorf("variant %q, %v", v, err)
	}
	err := testComponent(t, "iptables-legacy").Cleanup(t.Context(), testEnv(t))
	if !errors.Is(err, proxiers.ErrUnsupported) {
		t.Errorf("cleanup: %v, want that nobody can tell", err)
	}
}

func TestProbeReportsMissingExtensions(t *testing.T) {
	iptablestest.ForEachVariant(t, xtables.Variants(), func(t *testing.T, v xtables.Variant) {
		// The iptables programs search for extensions in the directory that the environment variable XTABLES_LIBDIR
		// specifies.
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
		if !errors.Is(err, proxiers.ErrUnsupported) ||
			!strings.Contains(err.Error(), "match statistic, target MASQUERADE:") {
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
