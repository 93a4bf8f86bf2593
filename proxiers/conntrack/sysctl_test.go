package conntrack

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestLimitsAreRaisedNeverLowered(t *testing.T) {
	const perCore, cores = 32768, 8
	for name, c := range map[string]struct {
		s                           Settings
		max, hash, wantMax, wantTab string
	}{
		"raised":              {Settings{MaxPerCore: perCore, Min: 131072}, "65536", "16384", "262144", "65536"},
		"minimum":             {Settings{MaxPerCore: 1, Min: 131072}, "65536", "16384", "131072", "32768"},
		"bounded":             {Settings{MaxPerCore: 1 << 20, Min: 131072}, "65536", "16384", "1048576", "262144"},
		"higher already":      {Settings{MaxPerCore: perCore, Min: 131072}, "500000", "16384", "500000", "16384"},
		"larger table stays":  {Settings{MaxPerCore: perCore, Min: 131072}, "65536", "100000", "262144", "100000"},
		"nothing asked":       {Settings{}, "65536", "16384", "65536", "16384"},
		"higher minimum wins": {Settings{MaxPerCore: 1, Min: 2000000}, "65536", "16384", "2000000", "500000"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, maxFile, c.max)
			write(t, root, hashFile, c.hash)
			if err := applySysctls(root, c.s, cores, slog.New(slog.DiscardHandler)); err != nil {
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

func TestKernelTakesTheTimeouts(t *testing.T) {
	enterNamespace(t)
	// The timeouts belong to the namespace; their files to the one of the thread that opens them.
	const root = "/proc/thread-self/root"
	err := applySysctls(root, Settings{
		TCPEstablished: 3 * time.Hour, TCPCloseWait: 10 * time.Minute, UDP: 31 * time.Second, UDPStream: 121 * time.Second, TCPBeLiberal: true,
	}, 1, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"tcp_timeout_established": "10800", "tcp_timeout_close_wait": "600", "udp_timeout": "31", "udp_timeout_stream": "121", "tcp_be_liberal": "1",
	} {
		if got := read(t, root, timeoutFiles+name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}

func TestFailureNamesTheKeyAndDoesNotStopTheOthers(t *testing.T) {
	root := t.TempDir()
	write(t, root, timeoutFiles+"udp_timeout", "30")
	write(t, root, maxFile, "not a number")
	err := applySysctls(root, Settings{MaxPerCore: 1, Min: 1, TCPEstablished: time.Hour, UDP: time.Minute}, 1, slog.New(slog.DiscardHandler))
	if err == nil || !strings.Contains(err.Error(), "nf_conntrack_max") || !strings.Contains(err.Error(), "nf_conntrack_tcp_timeout_established") {
		t.Errorf("error %v does not name both settings that failed", err)
	}
	if got := read(t, root, timeoutFiles+"udp_timeout"); got != "60" {
		t.Errorf("udp_timeout is %s, want 60: another setting's failure stopped it", got)
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
