package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mistake is a typical mistake in one of the files of a configuration that is in order otherwise.
type mistake struct {
	name string
	// old is replaced by new in the file; where there is no old, new is the whole file.
	file, old, new string
	// place, what and do are in the one line that config check prints: the file, with the line where there is one, and
	// the object; what is wrong; and what to do.
	place, what, do string
	// warning says that the daemon runs with it all the same.
	warning bool
}

// check writes the files with the mistake, and wants config check to tell it.
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
	var told []string
	for line := range strings.Lines(stderr) {
		if strings.HasPrefix(line, "edgeway: ") || strings.HasPrefix(line, "WARNING: ") {
			told = append(told, line)
		}
	}
	if len(told) != 1 {
		t.Fatalf("%d faults are told, want one:\n%s", len(told), stderr)
	}
	line := strings.ReplaceAll(told[0], dir, "DIR")
	for _, want := range []string{m.place, m.what, m.do} {
		if want == "" || !strings.Contains(line, strings.ReplaceAll(want, dir, "DIR")) {
			t.Errorf("the line does not have %q:\n%s", want, line)
		}
	}
	if !strings.Contains(line, "DIR") {
		t.Errorf("the line names no file:\n%s", line)
	}
	want := exitUsage
	if m.warning {
		want = exitOK
	}
	if code != want || (stdout == "") == m.warning || strings.HasPrefix(line, "WARNING: ") != m.warning {
		t.Errorf("exit %d, out %q, want a warning: %t:\n%s", code, stdout, m.warning, line)
	}
}

// place writes a file into a folder that may have to be made.
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

func TestMistakesInTheConfiguration(t *testing.T) {
	t.Parallel()
	const main = "edgeway.toml"
	for _, m := range []mistake{
		{"misspelt key", main, "service_cidrs", "service_cidr", "DIR/edgeway.toml:7", "unknown key", "nearest known one is proxy.service_cidrs", false},
		{"wrong section", main, "[metrics]", "[metric]", "DIR/edgeway.toml:11", "metric.address: unknown key", "nearest known one is", false},
		{"no version", main, "version = 1", "", "DIR/edgeway.toml", "version: is missing", "must say version = 1", false},
		{"version of the future", main, "version = 1", "version = 2", "DIR/edgeway.toml:1", "version", "must be 1", false},
		{"no quotes", main, `"127.0.0.1:10249"`, "127.0.0.1:10249", "DIR/edgeway.toml:11", `Invalid float value: "127.0.0.1"`, "text needs quotes", false},
		{"no quotes around a word", main, "[metrics]", "backend = auto\n[metrics]", "DIR/edgeway.toml:10", `found "auto"`, "text needs quotes", false},
		{"no bracket", main, `["m"]`, `["m"`, "DIR/edgeway.toml:6", "but got '['", "expected a comma (',') or array terminator (']')", false},
		{"text for a list", main, `["m"]`, `"m"`, "DIR/edgeway.toml:4", "not a string", "must be an array of strings", false},
		{"no source", main, `paths = ["m"]`, "paths = []", "DIR/edgeway.toml", "no source of Services", "set source.kube.kubeconfig", false},
		{"range with the address of a host", main, "10.96.0.0/16", "10.96.0.1/16", "DIR/edgeway.toml:7", "bits beyond", "did you mean 10.96.0.0/16?", false},
		{"ports the wrong way round", main, "30000-32767", "32767-30000", "DIR/edgeway.toml:8", "is not a range of ports", `as in "30000-32767"`, false},
		{"two servers on one port", main, "10249", "10256", "DIR/edgeway.toml:11", "have the same port", "write another port", false},
		{"name for an address", main, "127.0.0.1:10249", "localhost:10249", "DIR/edgeway.toml:11", `"localhost"`, "is not an address", false},
		{"number for a duration", main, "[metrics]", "[checks.tcp]\ninterval = 3600\n[metrics]", "DIR/edgeway.toml:11", "not an integer", `a string with a unit, as in "30s"`, false},
		{"removed key", main, "[metrics]", "min_sync_period = \"1s\"\n[metrics]", "DIR/edgeway.toml:10", "proxy.min_sync_period: removed and ignored", "remove this line", false},
		{"backend of kube-proxy", main, "[metrics]", "backend = \"kernelspace\"\n[metrics]", "DIR/edgeway.toml:10", "is not allowed", `"nftables"`, false},
		{"mode without its key", main, "[metrics]", "local_detection = \"cluster_cidr\"\n[metrics]", "DIR/edgeway.toml", "proxy.cluster_cidrs", "must be set", false},
		{"key without its mode", main, "[metrics]", "cluster_cidrs = [\"10.244.0.0/16\"]\n[metrics]", "DIR/edgeway.toml:10", "is set", `but proxy.local_detection is "none"`, false},
		{"same key twice", main, "[metrics]", "service_cidrs = []\n[metrics]", "DIR/edgeway.toml:10", "service_cidrs", "already", false},
		{"two addresses of a family", main, "[proxy]", "[node]\naddresses = [\"192.0.2.1\", \"192.0.2.2\"]\n[proxy]", "DIR/edgeway.toml:7", "node.addresses", "more than one IPv4 address", false},
		{"manifests that are not there", main, `["m"]`, `["n"]`, "DIR/n", "it cannot be read: no such file or directory", "create it, or correct the path", false},
		{"home folder", main, `["m"]`, `["~/m"]`, "DIR/~/m", "no such file or directory", "~ is not expanded", false},
		{"drop-in with another ending", "conf.d/site.conf", "", "[proxy]\nmasquerade_all = true\n", "DIR/conf.d/site.conf", "it is not read", "rename it", true},
		{"mistake in a drop-in", "conf.d/site.toml", "", "[proxy]\nmasquerade = true\n", "DIR/conf.d/site.toml:2", "unknown key", "proxy.masquerade_all", false},
		{"web configuration that is not there", main, "[metrics]", "[metrics]\nweb_config = \"web.yml\"", "DIR/web.yml", "metrics.web_config", "create it, or correct the path", false},
		{"no manifests", main, `["m"]`, `["."]`, "DIR", "has no manifests", "must end with .yaml", true},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.check(t, map[string]string{main: goodConfig, "m/web.yaml": goodManifest})
		})
	}
}

func TestMistakesInTheWebConfiguration(t *testing.T) {
	t.Parallel()
	for _, m := range []mistake{
		{"misspelt key", "web.yml", "", "tls_server_confg: {}\n", "DIR/web.yml", "field tls_server_confg not found", "tls_server_config", false},
		{"password that is no hash", "web.yml", "", "basic_auth_users: {me: secret}\n", "DIR/web.yml", "bcrypt", "htpasswd -B", false},
		{"certificate without a key", "web.yml", "", "tls_server_config: {cert_file: a.crt}\n", "DIR/web.yml", "missing one of key or key_file", "tls_server_config", false},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.check(t, map[string]string{"edgeway.toml": goodConfig + "web_config = \"web.yml\"\n", "m/web.yaml": goodManifest})
		})
	}
}
