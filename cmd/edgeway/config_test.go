package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestMain runs the edgeway command instead of the tests if config check or a test re-executes the test binary.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && slices.Contains([]string{"config", "cleanup"}, os.Args[1]) {
		main()
	}
	// Do not connect: real servers may be listening at the addresses in the tests.
	connectAny = func(context.Context, []netip.AddrPort) string { return "" }
	os.Exit(m.Run())
}

// Root can read every file. When root runs config check, the command therefore checks the files as another user, and
// suggests a fix that gives the group edgeway access to each unreadable file.
func TestConfigCheckRunsAsAnotherUser(t *testing.T) {
	other, err := user.Lookup("nobody")
	if os.Geteuid() != 0 || err != nil {
		t.Skip("needs root, and a user who is not root")
	}
	gid, err := strconv.Atoi(other.Gid)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		mode os.FileMode
		want string
	}{
		"web.yml":    {0o600, "edgeway: metrics.web_config: DIR/web.yml: open DIR/web.yml: permission denied; fix: run: chgrp edgeway DIR/web.yml && chmod g+rX DIR/web.yml"},
		"m":          {0o700, "edgeway: DIR/m: permission denied; fix: run: chgrp edgeway DIR/m && chmod g+rX DIR/m"},
		"m/web.yaml": {0o600, "edgeway: DIR/m/web.yaml: permission denied; fix: run: chgrp edgeway DIR/m/web.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for d := dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
				if err := os.Chmod(d, 0o755); err != nil {
					t.Fatal(err)
				}
			}
			place(t, filepath.Join(dir, "web.yml"), "{}")
			place(t, filepath.Join(dir, "m", "web.yaml"), goodManifest)
			path := filepath.Join(dir, "edgeway.toml")
			place(t, path, "version = 1\nsource.file.paths = ['m']\nmetrics.web_config = 'web.yml'\n")
			check := func() (int, string) {
				var out strings.Builder
				cmd := &cobra.Command{}
				cmd.SetContext(t.Context())
				cmd.SetOut(&out)
				cmd.SetErr(&out)
				ran, err := checkConfigAs(cmd, other.Username, path)
				if !ran {
					t.Fatalf("the check did not run: %v", err)
				}
				return exitCode(err, true), strings.ReplaceAll(out.String(), dir, "DIR")
			}
			change := func(mode os.FileMode, gid int) {
				t.Helper()
				at := filepath.Join(dir, name)
				for _, other := range []string{"edgeway.toml", "web.yml", "m", "m/web.yaml"} {
					if err := os.Chmod(filepath.Join(dir, other), 0o755); err != nil {
						t.Fatal(err)
					}
				}
				if err := errors.Join(os.Chmod(at, mode), os.Chown(at, -1, gid)); err != nil {
					t.Fatal(err)
				}
			}
			change(c.mode, 0)
			if code, out := check(); code != exitUsage || !strings.Contains(out, c.want) {
				t.Errorf("exit %d, want %q:\n%s", code, c.want, out)
			}
			change(c.mode|c.mode>>3&0o050, gid)
			if code, out := check(); code != exitOK {
				t.Errorf("after the fix: exit %d:\n%s", code, out)
			}
		})
	}
}

func TestConfigCheckAsUnknownUser(t *testing.T) {
	if ran, err := checkConfigAs(&cobra.Command{}, "no-such-user-of-this-host", "/etc/edgeway/edgeway.toml"); ran ||
		err != nil {
		t.Errorf("ran %t, %v", ran, err)
	}
}
