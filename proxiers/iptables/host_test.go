package iptables

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// newHost moves the test into a network namespace of its own. The thread is never unlocked, so it ends
// with the test, and the namespace with it. The lock of iptables-legacy is the test's own, too.
func newHost(t testing.TB) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatalf("new network namespace (the test needs root): %v", err)
	}
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "lock"))
}

// eachVariant runs a test for both, each on a host of its own.
func eachVariant(t *testing.T, test func(t *testing.T, v variant)) {
	t.Helper()
	for _, v := range variants {
		t.Run(string(v), func(t *testing.T) {
			newHost(t)
			test(t, v)
		})
	}
}

func testTools(t testing.TB, v variant, f plan.Family) *tools {
	t.Helper()
	tools, err := openTools(v, f)
	if err != nil {
		t.Fatal(err)
	}
	return tools
}

// run runs a program, which must succeed, and gives what it prints.
func run(t testing.TB, stdin, name string, args ...string) string {
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

// startOther runs a script of another program on this host meanwhile. It must succeed.
func startOther(t *testing.T, script string) (wait func()) {
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

// restore is what another program does: the input is lines of one table.
func restore(t testing.TB, v variant, f plan.Family, table string, lines ...string) {
	t.Helper()
	input := fmt.Sprintf("*%s\n%s\nCOMMIT\n", table, strings.Join(lines, "\n"))
	run(t, input, fmt.Sprintf("%s-%s-restore", programName(f), v), "--noflush")
}

// ruleset gives all rules of one variant and family without comments and counts.
func ruleset(t testing.TB, v variant, f plan.Family) string {
	t.Helper()
	return saveDetails.ReplaceAllString(run(t, "", fmt.Sprintf("%s-%s-save", programName(f), v)), "")
}

var saveDetails = regexp.MustCompile(`(?m)^#.*\n| \[\d+:\d+\]`)

// nftRuleset is what the kernel has of nftables.
func nftRuleset(t testing.TB) string {
	t.Helper()
	return run(t, "", "nft", "--stateless", "list", "ruleset")
}

// registeredTables are those of iptables-legacy.
func registeredTables(t testing.TB) string {
	t.Helper()
	var all []string
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		names, err := legacyTables(f)
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(names)
		all = append(all, fmt.Sprintf("%s: %s", f, names))
	}
	return strings.Join(all, ", ")
}

// onlyPrograms makes a PATH of nothing but these; each is a link, or a script if it has a text.
func onlyPrograms(t *testing.T, programs map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range programs {
		var err error
		switch {
		case text == "":
			var path string
			if path, err = exec.LookPath(name); err == nil {
				err = os.Symlink(path, filepath.Join(dir, name))
			}
		case strings.HasPrefix(text, "#!"):
			err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755)
		default:
			var path string
			if path, err = exec.LookPath(text); err == nil {
				err = os.Symlink(path, filepath.Join(dir, name))
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

func testBackend(t testing.TB, name string) proxiers.Backend {
	t.Helper()
	list := Backends()
	i := slices.IndexFunc(list, func(b proxiers.Backend) bool { return b.Name == name })
	if i < 0 {
		t.Fatalf("no backend %q", name)
	}
	return list[i]
}

func testLogger(t testing.TB) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }
