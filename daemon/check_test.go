package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"edgeway/daemon/files"
	"edgeway/proxiers/fault"
)

// site is a folder with a configuration of all files.
type site struct {
	t   *testing.T
	dir string
}

func newSite(t *testing.T) site {
	t.Helper()
	s := site{t, t.TempDir()}
	for d := s.dir; d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
		s.must(os.Chmod(d, 0o755))
	}
	s.must(os.Mkdir(s.path("m"), 0o755))
	s.write("m/web.yaml", "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {clusterIP: 10.96.0.10, ports: [{port: 80}]}\n")
	s.write("kubeconfig", `{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: "https://192.0.2.1"}}], users: [{name: u, user: {tokenFile: token}}]}`)
	s.write("token", "a")
	s.write("web.yml", "{}")
	s.write("edgeway.toml", "version = 1\nsource.file.paths = ['m']\nsource.kube.kubeconfig = 'kubeconfig'\nmetrics.web_config = 'web.yml'\n")
	return s
}

func (s site) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s site) path(name string) string { return filepath.Join(s.dir, name) }

func (s site) write(name, text string) {
	s.t.Helper()
	s.must(os.WriteFile(s.path(name), []byte(text), 0o644))
}

// problems gives those of the checks with these names, one line each.
func problems(found []fault.Fault, checks ...string) (out []string) {
	for _, f := range found {
		if f.Severity == fault.Problem && slices.Contains(checks, f.ID) {
			out = append(out, f.String()+": "+f.Fix)
		}
	}
	return out
}

// Root can read everything; what counts is what the service's user can.
func TestRootChecksWithTheRightsOfTheServicesUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it takes the rights of another user")
	}
	id := files.User{Name: "somebody", UID: 54321, GID: 54322}
	checks := []string{"kubeconfig", "web-config", "manifests"}
	for name, c := range map[string]struct {
		mode os.FileMode
		want string
	}{
		"kubeconfig": {0o600, "kubeconfig: open DIR/kubeconfig: permission denied: run: chgrp edgeway DIR/kubeconfig && chmod g+rX DIR/kubeconfig"},
		"token":      {0o600, "users[u].user.tokenFile: open DIR/token: permission denied: run: chgrp edgeway DIR/token"},
		"web.yml":    {0o600, "metrics.web_config: DIR/web.yml: open DIR/web.yml: permission denied: run: chgrp edgeway DIR/web.yml"},
		"m":          {0o700, "DIR/m: permission denied: run: chgrp edgeway DIR/m && chmod g+rX DIR/m"},
		"m/web.yaml": {0o600, "DIR/m/web.yaml: permission denied: run: chgrp edgeway DIR/m/web.yaml"},
	} {
		s := newSite(t)
		check := func() string {
			found, err := checkConfigAs(s.path("edgeway.toml"), id)
			s.must(err)
			return strings.ReplaceAll(strings.Join(problems(found, checks...), "\n"), s.dir, "DIR")
		}
		if got := check(); got != "" {
			t.Errorf("files that everybody may read: %s", got)
		}
		s.must(os.Chmod(s.path(name), c.mode))
		if got := check(); !strings.Contains(got, c.want) || strings.Contains(got, "\n") {
			t.Errorf("%s of root alone:\n%s\nwant\n%s", name, got, c.want)
		}
		// What is advised helps.
		s.must(os.Chown(s.path(name), -1, id.GID))
		s.must(os.Chmod(s.path(name), c.mode|c.mode>>3&0o050))
		if got := check(); got != "" {
			t.Errorf("%s that the group may read: %s", name, got)
		}
		if found, err := CheckConfig(t.Context(), s.path("edgeway.toml")); err != nil || len(problems(found, checks...)) > 0 {
			t.Errorf("root's own rights: %v, %v", found, err)
		}
	}
}

func TestFilesThatTheSandboxHidesAreNamed(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it takes the rights of another user")
	}
	s := newSite(t)
	found, err := checkConfigAs(s.path("edgeway.toml"), files.User{Name: "somebody", UID: 54321, GID: 54322})
	s.must(err)
	got := strings.Join(problems(found, "sandbox"), "\n")
	if !strings.HasPrefix(s.dir, "/tmp/") {
		t.Skipf("needs temporary files below /tmp, and they are in %s", s.dir)
	}
	for _, name := range []string{"m", "kubeconfig", "token", "web.yml"} {
		want := s.path(name) + ": edgeway.service does not see what is below /tmp (PrivateTmp=yes): move it to /etc/edgeway"
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	unit, err := os.ReadFile("../units/edgeway.service")
	s.must(err)
	for _, h := range hidden {
		if !strings.Contains(string(unit), "\n"+h.setting) {
			t.Errorf("edgeway.service has no %s, which should hide %s", h.setting, h.folder)
		}
	}
}

// What run would refuse on this host is refused where the configuration is this host's, and not in a pipeline.
func TestABackendThatCannotRun(t *testing.T) {
	cfg, err := LoadConfig(newSite(t).path("edgeway.toml"))
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	check := func(installed bool) string {
		var lines []string
		for _, f := range checkBackend(t.Context(), cfg, installed) {
			lines = append(lines, fmt.Sprintf("%s %s: %s: %s", f.Severity, f.ID, f.Message, f.Fix))
		}
		return strings.Join(lines, "\n")
	}
	if got := check(true); !strings.HasPrefix(got, "problem backend: ") || !strings.Contains(got, "install the package") || !strings.Contains(got, "`edgeway probe`") {
		t.Errorf("programs are missing: %q", got)
	}
	if got := check(false); !strings.HasPrefix(got, "warning backend: ") || !strings.HasSuffix(got, "only if the configuration is for this host") {
		t.Errorf("programs are missing in a pipeline: %q", got)
	}
	const refuses = "#!/bin/sh\ncase $1 in --version) echo 'nftables v1.0.6';; *) echo 'netlink: Error: cache initialization failed: Operation not permitted' >&2; exit 1;; esac\n"
	if err := os.WriteFile(filepath.Join(bin, "nft"), []byte(refuses), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := check(true); !strings.HasPrefix(got, "warning backend: it could not be checked") || !strings.HasSuffix(got, "run this command as root") {
		t.Errorf("without the right: %q", got)
	}
	if got := check(false); got != "" {
		t.Errorf("without the right, in a pipeline: %q", got)
	}
}

// A restart is for what may pass by itself.
func TestWhatIsPermanent(t *testing.T) {
	t.Parallel()
	at := func(err error) error {
		return fmt.Errorf("kubeconfig: %w", &fs.PathError{Op: "open", Path: "/k", Err: err})
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{errors.New("it does not parse"), true},
		{at(syscall.EACCES), true},
		{at(syscall.EPERM), true},
		{at(syscall.ENOENT), false}, // somebody may yet write it
		{at(syscall.EIO), false},
		{at(syscall.EMFILE), false},
	} {
		err := permanent(c.err)
		if _, got := errors.AsType[*Permanent](err); got != c.want || err.Error() != c.err.Error() || !errors.Is(err, c.err) {
			t.Errorf("%v: permanent %t, want %t", c.err, got, c.want)
		}
	}
}

func TestWhatHasNoEffectIsNamed(t *testing.T) {
	s := newSite(t)
	s.write("m/ingress.yaml", "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\n")
	s.write("edgeway.toml", "version = 1\nsource.file.paths = ['m']\nipvs.scheduler = 'lc'\n")
	found, err := checkConfig(s.path("edgeway.toml"), nil)
	s.must(err)
	for _, want := range []string{"ipvs.scheduler ", "networking.k8s.io/v1 Ingress"} {
		named := func(f fault.Fault) bool { return f.Severity == fault.Notice && strings.Contains(f.Message, want) }
		if !slices.ContainsFunc(found, named) {
			t.Errorf("nothing names %s: %v", want, found)
		}
	}
}
