// Package iptablestest creates network namespaces for tests, and runs the iptables programs as other software does. The
// iptables variants are "nft" and "legacy".
package iptablestest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/plan"
)

// NewHost moves the test into a new network namespace. The test's goroutine stays locked to its thread, so the thread
// exits after the test, and the kernel then removes the namespace. The test also has its own iptables-legacy lock.
func NewHost(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("cannot create a network namespace (the test requires root): %v", err)
	}
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
}

// ForEachVariant runs a test for each variant, each time on a new host.
func ForEachVariant[V ~string](t *testing.T, variants []V, test func(t *testing.T, v V)) {
	t.Helper()
	for _, v := range variants {
		t.Run(string(v), func(t *testing.T) {
			NewHost(t)
			test(t, v)
		})
	}
}

// Run runs a program and returns its output. The program must succeed.
func Run(t testing.TB, stdin, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	var messages strings.Builder
	cmd.Stderr = &messages
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, &messages)
	}
	return string(out)
}

// StartScript starts a shell script that simulates another program. The returned function waits for the script to exit,
// and fails the test if the script failed.
func StartScript(t *testing.T, script string) (wait func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "sh", "-c", script)
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := cmd.Wait(); err != nil {
			t.Errorf("other program: %v", err)
		}
	}
}

// ProgramName returns the name of a program, such as "iptables-nft".
func ProgramName[V ~string](v V, f plan.Family) string {
	return map[plan.Family]string{plan.IPv4: "iptables-", plan.IPv6: "ip6tables-"}[f] + string(v)
}

// Restore changes one iptables table as another program would. lines holds the commands for this table in the format of
// iptables-restore.
func Restore[V ~string](t testing.TB, v V, f plan.Family, table string, lines ...string) {
	t.Helper()
	input := fmt.Sprintf("*%s\n%s\nCOMMIT\n", table, strings.Join(lines, "\n"))
	Run(t, input, ProgramName(v, f)+"-restore", "--noflush", "--wait")
}

// Ruleset returns all rules for one variant and family, without comments and counters.
func Ruleset[V ~string](t testing.TB, v V, f plan.Family) string {
	t.Helper()
	return RemoveDetails(Run(t, "", ProgramName(v, f)+"-save"))
}

var details = regexp.MustCompile(`(?m)^#.*\n| \[\d+:\d+\]`)

// RemoveDetails removes comments and counters from the output of iptables-save.
func RemoveDetails(saved string) string { return details.ReplaceAllString(saved, "") }

// NFTRuleset returns the kernel's nftables rule set.
func NFTRuleset(t testing.TB) string {
	t.Helper()
	return Run(t, "", "nft", "--stateless", "list", "ruleset")
}

// RestrictPrograms sets PATH to a directory with only the given programs. For each program, the map holds a script, or
// the name of the installed program to link to. The value "" links to the installed program of the same name.
func RestrictPrograms(t *testing.T, programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range programs {
		path := filepath.Join(dir, name)
		if strings.HasPrefix(text, "#!") {
			if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if text == "" {
			text = name
		}
		target, err := exec.LookPath(text)
		if err == nil {
			err = os.Symlink(target, path)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}
