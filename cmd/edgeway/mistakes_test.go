package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mistake is a typical mistake in one of the files of an otherwise valid configuration.
type mistake struct {
	name string
	// old is the correct text in the file, and new is the text that replaces it. If old is empty, new is the whole
	// file.
	file, old, new string
	// linePrefix is the beginning of the only line that config check prints. The prefix consists of the file and, if
	// known, the line number, the object and the field.
	linePrefix string
	// mention is a key, field, object or value that the line must contain, or "" if the test requires none.
	mention string
	// warning reports whether the daemon starts despite the mistake.
	warning bool
}

func (m mistake) check(t *testing.T, files map[string]string) {
	t.Helper()
	dir := t.TempDir()
	found := m.old == ""
	for name, text := range files {
		if name == m.file && m.old != "" {
			found = strings.Contains(text, m.old)
			text = strings.Replace(text, m.old, m.new, 1)
		}
		place(t, filepath.Join(dir, name), text)
	}
	if !found {
		t.Fatalf("%s does not have %q", m.file, m.old)
	}
	if m.old == "" {
		place(t, filepath.Join(dir, m.file), m.new)
	}
	code, stdout, stderr := run(t, "config", "check", "--config", filepath.Join(dir, "edgeway.toml"))
	var lines []string
	for line := range strings.Lines(strings.ReplaceAll(stderr, dir, "DIR")) {
		if strings.HasPrefix(line, "edgeway: ") || strings.HasPrefix(line, "WARNING: ") {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 {
		t.Fatalf("%d faults are reported, want one:\n%s", len(lines), stderr)
	}
	line := lines[0]
	_, text, _ := strings.Cut(line, ": ")
	if text, ok := strings.CutPrefix(text, m.linePrefix+":"); !ok || !strings.Contains(text, m.mention) {
		t.Errorf("the line does not begin with %q and name %q:\n%s", m.linePrefix, m.mention, line)
	}
	want := exitUsage
	if m.warning {
		want = exitOK
	}
	if code != want || (stdout == "") == m.warning || strings.HasPrefix(line, "WARNING: ") != m.warning {
		t.Errorf("exit %d, out %q, want a warning: %t:\n%s", code, stdout, m.warning, line)
	}
}

func place(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

const goodConfig = `version = 1

[source.file]
paths = ["m"]

[proxy]
service_cidrs = ["10.96.0.0/16"]
nodeport_range = "30000-32767"

[metrics]
address = "127.0.0.1:10249"
`

func TestConfigurationMistakes(t *testing.T) {
	t.Parallel()
	const main = "edgeway.toml"
	for _, m := range []mistake{
		{"misspelt key", main, "service_cidrs", "service_cidr", "DIR/edgeway.toml:7: proxy.service_cidr", "proxy.service_cidrs", false},
		{"wrong section", main, "[metrics]", "[metric]", "DIR/edgeway.toml:11: metric.address", "", false},
		{"no version", main, "version = 1", "", "DIR/edgeway.toml: version", "", false},
		{"version of the future", main, "version = 1", "version = 2", "DIR/edgeway.toml:1: version", "", false},
		{"no quotes", main, `"127.0.0.1:10249"`, "127.0.0.1:10249", "DIR/edgeway.toml:11", "quotes", false},
		{"no quotes around a word", main, "[metrics]", "backend = auto\n[metrics]", "DIR/edgeway.toml:10", "quotes", false},
		{"no bracket", main, `["m"]`, `["m"`, "DIR/edgeway.toml:6", "", false},
		{"text for a list", main, `["m"]`, `"m"`, "DIR/edgeway.toml:4: source.file.paths", "", false},
		{"no source", main, `paths = ["m"]`, "paths = []", "DIR/edgeway.toml", "source.kube.kubeconfig", false},
		{"range with the address of a host", main, "10.96.0.0/16", "10.96.0.1/16", "DIR/edgeway.toml:7: proxy.service_cidrs", "10.96.0.0/16", false},
		{"ports the wrong way round", main, "30000-32767", "32767-30000", "DIR/edgeway.toml:8: proxy.nodeport_range", "", false},
		{"name for an address", main, "127.0.0.1:10249", "localhost:10249", "DIR/edgeway.toml:11: metrics.address", "", false},
		{"number for a duration", main, "[metrics]", "[checks.tcp]\ninterval = 3600\n[metrics]", "DIR/edgeway.toml:11: checks.tcp.interval", "", false},
		{"removed key", main, "[metrics]", "min_sync_period = \"1s\"\n[metrics]", "DIR/edgeway.toml:10: proxy.min_sync_period", "removed", false},
		{"backend of kube-proxy", main, "[metrics]", "backend = \"kernelspace\"\n[metrics]", "DIR/edgeway.toml:10: proxy.backend", `"nftables"`, false},
		{"mode without its key", main, "[metrics]", "local_detection = \"cluster_cidr\"\n[metrics]", "DIR/edgeway.toml: proxy.cluster_cidrs", "proxy.local_detection", false},
		{"key without its mode", main, "[metrics]", "cluster_cidrs = [\"10.244.0.0/16\"]\n[metrics]", "DIR/edgeway.toml:10: proxy.cluster_cidrs", "proxy.local_detection", false},
		{"same key twice", main, "[metrics]", "service_cidrs = []\n[metrics]", "DIR/edgeway.toml:10", "proxy.service_cidrs", false},
		{"two addresses of a family", main, "[proxy]", "[node]\naddresses = [\"192.0.2.1\", \"192.0.2.2\"]\n[proxy]", "DIR/edgeway.toml:7: node.addresses", "", false},
		{"manifests that are not there", main, `["m"]`, `["n"]`, "DIR/n", "", false},
		{"home folder", main, `["m"]`, `["~/m"]`, "DIR/~/m", "", false},
		{"drop-in with another ending", "conf.d/site.conf", "", "[proxy]\nmasquerade_all = true\n", "DIR/conf.d/site.conf", "", true},
		{"mistake in a drop-in", "conf.d/site.toml", "", "[proxy]\nmasquerade = true\n", "DIR/conf.d/site.toml:2: proxy.masquerade", "proxy.masquerade_all", false},
		{"web configuration that is not there", main, "[metrics]", "[metrics]\nweb_config = \"web.yml\"", "metrics.web_config: DIR/web.yml", "", false},
		{"no manifests", main, `["m"]`, `["."]`, "DIR", "", true},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.check(t, map[string]string{main: goodConfig, "m/web.yaml": goodManifest})
		})
	}
}

func TestWebConfigurationMistakes(t *testing.T) {
	t.Parallel()
	for _, m := range []mistake{
		{"misspelt key", "web.yml", "", "tls_server_confg: {}\n", "metrics.web_config: DIR/web.yml", "tls_server_confg", false},
		{"password that is no hash", "web.yml", "", "basic_auth_users: {me: secret}\n", "metrics.web_config: DIR/web.yml", "htpasswd", false},
		{"certificate without a key", "web.yml", "", "tls_server_config: {cert_file: a.crt}\n", "metrics.web_config: DIR/web.yml", "key_file", false},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.check(t, map[string]string{
				"edgeway.toml": goodConfig + "web_config = \"web.yml\"\n",
				"m/web.yaml":   goodManifest,
			})
		})
	}
}
