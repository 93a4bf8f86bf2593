package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edgeway/daemon"
)

// edgeway probe fails only if the configured backend cannot run. At the beginning of this test, PATH contains neither
// nft nor iptables.
func TestProbeTestsConfiguredBackend(t *testing.T) {
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	for _, choice := range daemon.Backends() {
		backend := choice.Name
		name := configFile(t, "version = 1\nsource.file.paths = ['m']\nproxy.backend = '"+backend+"'")
		code, stdout, stderr := run(t, "probe", "--config", name)
		if code != exitFailure || !strings.HasPrefix(stderr,
			"edgeway: "+backend+", the configured backend, cannot run: ") {
			t.Errorf("probe with %s exit %d, err %q", backend, code, stderr)
		}
		if n := strings.Count(stdout, ": cannot run: "); n != len(daemon.Backends())-1 ||
			strings.Contains(stdout, "\n"+backend+":") {
			t.Errorf("probe with %s says\n%s", backend, stdout)
		}
	}
	nft := filepath.Join(bin, "nft") // this nft accepts every command
	if err := os.WriteFile(nft, []byte("#!/bin/sh\necho 'nftables v1.0.6 (Lester Gooch #5)'\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := run(t, "probe", "--config", filepath.Join(bin, "none"))
	if code != exitOK || !strings.Contains(stdout, "nftables: can run\n") ||
		!strings.Contains(stdout, "iptables-nft: cannot run: ") {
		t.Errorf("probe without a configuration: exit %d, out %q, err %q", code, stdout, stderr)
	}
}
