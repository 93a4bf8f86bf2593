package conntrack

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLimitsAreRaisedNeverLowered(t *testing.T) {
	const perCore, cores = 32768, 8
	for name, c := range map[string]struct {
		perCore                     int
		max, hash, wantMax, wantTab string
	}{
		"raised":             {perCore, "65536", "16384", "262144", "65536"},
		"minimum":            {1, "65536", "16384", "131072", "32768"},
		"bounded":            {1 << 20, "65536", "16384", "1048576", "262144"},
		"higher already":     {perCore, "500000", "16384", "500000", "16384"},
		"larger table stays": {perCore, "65536", "100000", "262144", "100000"},
		"nothing asked":      {0, "65536", "16384", "65536", "16384"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, maxFile, c.max)
			write(t, root, hashFile, c.hash)
			if err := raiseMax(root, c.perCore, cores, slog.New(slog.DiscardHandler)); err != nil {
				t.Fatal(err)
			}
			if got := read(t, root, maxFile); got != c.wantMax {
				t.Errorf("nf_conntrack_max is %s, want %s", got, c.wantMax)
			}
			if got := read(t, root, hashFile); got != c.wantTab {
				t.Errorf("nf_conntrack_buckets is %s, want %s", got, c.wantTab)
			}
		})
	}
}

func TestSysctlFailureDoesNotStopOther(t *testing.T) {
	root := t.TempDir()
	write(t, root, maxFile, "65536")
	err := raiseMax(root, 1, 1, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "nf_conntrack_buckets") {
		t.Errorf("error %v does not name the file that is missing", err)
	}
	if got := read(t, root, maxFile); got != "131072" {
		t.Errorf("nf_conntrack_max is %s, want 131072", got)
	}
}

func write(t *testing.T, root, file, value string) {
	t.Helper()
	path := filepath.Join(root, file)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(value+"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, root, file string) string {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(root, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(raw))
}
