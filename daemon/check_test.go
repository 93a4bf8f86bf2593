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

	"edgeway/proxiers/fault"
)

func checkedConfig(t *testing.T, config string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"m/web.yaml": checkedManifest, "token": "a", "web.yml": "{}",
		"kubeconfig": `{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: "https://192.0.2.1"}}], users: [{name: u, user: {tokenFile: token}}]}`,
		"m/ingress.yaml": "apiVersion: networking.k8s.io/v1\nkind: Ingress\nmetadata: {name: web}\n",
		"edgeway.toml":   config,
	} {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "edgeway.toml")
}

func TestCheckReportsFilesHiddenBySandbox(t *testing.T) {
	path := checkedConfig(t, "version = 1\nsource.file.paths = ['m']\nsource.kube.kubeconfig = 'kubeconfig'\nmetrics.web_config = 'web.yml'\n")
	dir := filepath.Dir(path)
	if !strings.HasPrefix(dir, "/tmp/") {
		t.Skipf("needs temporary files below /tmp, and they are in %s", dir)
	}
	cfg, err := LoadConfig(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &configCheck{cfg: cfg, installed: true, hasServiceRights: true}
	c.checkSandbox()
	var hid []string
	for _, f := range c.found {
		if f.ID == "sandbox" && f.Severity == fault.Problem &&
			strings.HasSuffix(f.Message, "below /tmp (PrivateTmp=yes)") {
			name, _, _ := strings.Cut(f.Message, ":")
			hid = append(hid, strings.TrimPrefix(name, dir+"/"))
		}
	}
	slices.Sort(hid)
	if want := []string{"kubeconfig", "m", "token", "web.yml"}; !slices.Equal(hid, want) {
		t.Errorf("hidden are %q, want %q: %+v", hid, want, c.found)
	}
	unit, err := os.ReadFile("../units/edgeway.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hiddenDirs {
		if !strings.Contains(string(unit), "\n"+h.setting) {
			t.Errorf("edgeway.service has no %s, which should hide %s", h.setting, h.folder)
		}
	}
}

// A backend that cannot run is a problem if the configuration is installed on this host, and otherwise only a warning.
func TestCheckReportsUnusableBackend(t *testing.T) {
	cfg, err := LoadConfig(checkedConfig(t, "version = 1\nsource.file.paths = ['m']\n"))
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	t.Setenv("PATH", bin)
	check := func(installed bool) string {
		c := &configCheck{cfg: cfg, installed: installed}
		c.checkBackend(t.Context())
		var lines []string
		for _, f := range c.found {
			lines = append(lines, fmt.Sprintf("%s %s: %s: %s", f.Severity, f.ID, f.Message, f.Fix))
		}
		return strings.Join(lines, "\n")
	}
	if got := check(true); !strings.HasPrefix(got, "problem backend: ") ||
		!strings.Contains(got, "install the nftables package") || !strings.Contains(got, "`edgeway probe`") {
		t.Errorf("programs are missing: %q", got)
	}
	if got := check(false); !strings.HasPrefix(got, "warning backend: ") ||
		!strings.HasSuffix(got, "if the configuration is for another host") {
		t.Errorf("programs are missing in a pipeline: %q", got)
	}
	const refuses = "#!/bin/sh\ncase $1 in --version) echo 'nftables v1.0.6';; *) echo 'netlink: Error: cache initialization failed: Operation not permitted' >&2; exit 1;; esac\n"
	if err := os.WriteFile(filepath.Join(bin, "nft"), []byte(refuses), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := check(true); !strings.HasPrefix(got, "warning backend: cannot determine whether") ||
		!strings.HasSuffix(got, "run this command as root") {
		t.Errorf("without the right: %q", got)
	}
	if got := check(false); got != "" {
		t.Errorf("without the right, in a pipeline: %q", got)
	}
}

// An error is permanent unless a restart can succeed without operator intervention.
func TestPermanentErrors(t *testing.T) {
	t.Parallel()
	at := func(err error) error {
		return fmt.Errorf("kubeconfig: %w", &fs.PathError{Op: "open", Path: "/k", Err: err})
	}
	for _, c := range []struct {
		err  error
		want bool
	}{
		{errors.New("cannot be parsed"), true},
		{at(syscall.EACCES), true},
		{at(syscall.EPERM), true},
		{at(syscall.ENOENT), false}, // another program may still create the file
		{at(syscall.EIO), false},
		{at(syscall.EMFILE), false},
	} {
		err := markPermanent(c.err)
		if _, got := errors.AsType[*PermanentError](err); got != c.want || err.Error() != c.err.Error() ||
			!errors.Is(err, c.err) {
			t.Errorf("%v: permanent %t, want %t", c.err, got, c.want)
		}
	}
}

func TestCheckReportsSettingsWithoutEffect(t *testing.T) {
	found, err := CheckConfig(t.Context(), checkedConfig(t,
		"version = 1\nsource.file.paths = ['m']\nipvs.scheduler = 'lc'\n"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"ipvs.scheduler ", "networking.k8s.io/v1 Ingress"} {
		named := func(f fault.Fault) bool { return f.Severity == fault.Notice && strings.Contains(f.Message, want) }
		if !slices.ContainsFunc(found, named) {
			t.Errorf("nothing names %s: %v", want, found)
		}
	}
}
