package jobs

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

// versions maps each suite to the prefixes of three version strings: the kernel's, nft's and systemd's.
var versions = map[vm.Suite][3]string{
	vm.Bookworm: {"6.1.", "nftables v1.0.6", "systemd 252"},
	vm.Trixie:   {"6.12.", "nftables v1.1.", "systemd 257"},
	vm.Newest:   {"7.", "nftables v1.", "systemd 2"},
}

// TestNightlyBoot boots every suite with systemd, and fails if systemd reports a problem. The Debian package's tests,
// which are part of every run, also verify systemd's state in two of the suites.
func TestNightlyBoot(t *testing.T) {
	for _, suite := range vm.Suites() {
		t.Run(string(suite), func(t *testing.T) {
			t.Parallel()
			out := vmtest.Run(t, vm.Job{
				Suite:   suite,
				Systemd: true,
				Files:   map[string]string{"boot.sh": "testdata/boot.sh"},
				Command: []string{"sh", "boot.sh"},
			})
			lines := strings.Split(out, "\n")
			for i, want := range versions[suite] {
				if i >= len(lines) || !strings.HasPrefix(lines[i], want) {
					t.Errorf("line %d: want %s…", i+1, want)
				}
			}
		})
	}
}

func TestRunner(t *testing.T) {
	t.Parallel()
	file, out := filepath.Join(t.TempDir(), "file"), t.TempDir()
	if err := os.WriteFile(file, []byte("content\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := time.Now().Truncate(time.Second)
	text, exit := vmtest.RunAny(t, vm.Job{
		Files:   map[string]string{"sub/dir/file": file, "/etc/edgeway/file": file},
		Links:   map[string]string{"/etc/link": "edgeway/file"},
		Env:     []string{"NAME=it's"},
		Command: []string{"sh", "-c", `cat sub/dir/file /etc/link; echo "$NAME $1"; date +%s >/vm/out/time; exit 77`, "sh", "$HOME"},
		Out:     out,
	})
	if want := "content\ncontent\nit's $HOME\n"; text != want || exit != 77 {
		t.Errorf("exit code %d, output %q; want 77 and %q", exit, text, want)
	}
	seconds, err := os.ReadFile(filepath.Join(out, "time"))
	if err != nil {
		t.Fatal(err)
	}
	there, err := time.ParseDuration(strings.TrimSpace(string(seconds)) + "s")
	if now := time.Unix(int64(there.Seconds()), 0); err != nil || now.Before(before) || now.After(time.Now()) {
		t.Errorf("time in the virtual machine: %s, %v", now, err)
	}
}

func TestHungJob(t *testing.T) {
	t.Parallel()
	vmtest.Need(t)
	var out strings.Builder
	_, err := vm.Run(context.Background(), vm.Job{
		Command: []string{"sh", "-c", "echo here; sleep 1000"}, Output: &out, Timeout: time.Minute,
	})
	if err == nil || !strings.Contains(err.Error(), "killed") || out.String() != "here\n" {
		t.Errorf("a job that sleeps: error %v, output %q", err, out.String())
	}
}
