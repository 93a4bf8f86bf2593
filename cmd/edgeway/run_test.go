package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"edgeway/daemon/control"
)

// systemd does not restart a daemon that exits with code 2.
func TestPermanentErrorsExitWith2(t *testing.T) {
	t.Parallel()
	unit, err := os.ReadFile("../../units/edgeway.service")
	if err != nil || !strings.Contains(string(unit), fmt.Sprintf("\nRestartPreventExitStatus=%d\n", exitUsage)) {
		t.Errorf("edgeway.service starts again what ends with %d (%v)", exitUsage, err)
	}
	dir := t.TempDir()
	kubeconfig := func(name, text string) string {
		place(t, filepath.Join(dir, name), text)
		return "version = 1\nsource.kube.kubeconfig = \"" + filepath.Join(dir, name) + "\"\n"
	}
	for name, c := range map[string]struct {
		config string
		code   int
		want   string
	}{
		"configuration":             {"version = 1\n", exitUsage, "source.kube.kubeconfig"},
		"kubeconfig":                {kubeconfig("broken", "{"), exitUsage, "kubeconfig "},
		"kubeconfig with a plugin":  {kubeconfig("plugin", "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\nclusters: [{name: k, cluster: {server: 'https://192.0.2.1'}}]\nusers: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: x, interactiveMode: Never}}}]\n"), exitUsage, "allow_exec_plugins"},
		"web configuration":         {"version = 1\nsource.file.paths = ['m']\nmetrics.web_config = '" + filepath.Join(dir, "broken") + "'\n", exitUsage, "metrics.web_config"},
		"kubeconfig yet to be made": {"version = 1\nsource.kube.kubeconfig = '/nowhere/kubeconfig'\n", exitFailure, "no such file"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := run(t, "run", "--config", configFile(t, c.config))
			if code != c.code || stdout != "" || !strings.Contains(stderr, c.want) {
				t.Errorf("exit %d, want %d; out %q, err %q", code, c.code, stdout, stderr)
			}
		})
	}
}

// Another backend may be able to run with the installed programs, so the error message mentions proxy.backend and
// edgeway probe.
func TestRunReportsMissingProgram(t *testing.T) {
	config := configFile(t, goodConfig)
	t.Setenv("PATH", t.TempDir())
	code, stdout, stderr := run(t, "run", "--config", config)
	for _, want := range []string{"install", "proxy.backend", "edgeway probe"} {
		if code != exitFailure || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("exit %d, out %q, no %q in %q", code, stdout, want, stderr)
		}
	}
}

func TestDryRunExitCodes(t *testing.T) {
	t.Parallel()
	site := func(manifest string) string {
		name := configFile(t, goodConfig)
		place(t, filepath.Join(filepath.Dir(name), "m", "web.yaml"), manifest)
		return name
	}
	good, bad := site(goodManifest), site(strings.Replace(goodManifest, "port: 80\n", "port: 0\n", 1))
	for config, want := range map[string]int{good: exitOK, bad: exitFailure} {
		code, stdout, stderr := run(t, "run", "--dry-run", "--wait", "1m", "--config", config)
		if code != want || stderr != "" || strings.Contains(stdout,
			"/m/web.yaml:9: Service default/web: spec.ports[0].port: ") != (want == exitFailure) {
			t.Errorf("exit %d, want %d, err %q, out:\n%s", code, want, stderr, stdout)
		}
		code, stdout, _ = run(t, "run", "--dry-run", "--json", "--wait", "1m", "--config", config)
		var p control.Plan
		if err := json.Unmarshal([]byte(stdout), &p); err != nil || code != want ||
			(len(p.Problems) > 0) != (want == exitFailure) || p.InForce {
			t.Errorf("JSON: exit %d, want %d, %v:\n%s", code, want, err, stdout)
		}
	}
	gone := configFile(t, goodConfig)
	if code, stdout, stderr := run(t, "run", "--dry-run", "--wait", "10s", "--config", gone); code != exitFailure ||
		!strings.Contains(stdout+stderr, syscall.ENOENT.Error()) {
		t.Errorf("without the manifests: exit %d, err %q, out:\n%s", code, stderr, stdout)
	}
}

func TestDryRunTimeout(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	place(t, filepath.Join(dir, "kubeconfig"),
		"current-context: c\ncontexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: 'http://127.0.0.1:1'}}]\n")
	config := configFile(t, "version = 1\nsource.lastknown.directory = '"+filepath.Join(dir, "state")+
		"'\nsource.kube.kubeconfig = '"+filepath.Join(dir, "kubeconfig")+"'\n")
	code, stdout, stderr := run(t, "run", "--dry-run", "--wait", "10s", "--config", config)
	for _, want := range []string{"--wait", "source kube: ", "http://127.0.0.1:1"} {
		if code != exitFailure || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("exit %d, out %q, no %q in %q", code, stdout, want, stderr)
		}
	}
	for _, flag := range []string{"--json", "--wait=1s"} {
		if code, _, stderr := run(t, "run", flag, "--config", config); code != exitUsage ||
			!strings.Contains(stderr, "--dry-run") {
			t.Errorf("%s without --dry-run: exit %d, err %q", flag, code, stderr)
		}
	}
}
