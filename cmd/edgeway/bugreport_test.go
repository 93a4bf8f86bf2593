package main

import (
	"archive/tar"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edgeway/daemon/control"
	"edgeway/daemon/health"
	"edgeway/proxiers/fault"
)

func unpacked(t *testing.T, path string) map[string]string {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || info.Mode() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	zip, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for r := tar.NewReader(zip); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		content, readErr := io.ReadAll(r)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		out[strings.TrimPrefix(header.Name, "edgeway-bugreport/")] = string(content)
	}
}

// setFakePrograms sets PATH to a directory that contains only the given shell scripts.
func setFakePrograms(t *testing.T, scripts map[string]string) {
	t.Helper()
	dir := t.TempDir()
	for name, script := range scripts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir)
}

func TestBugReportWithoutDaemon(t *testing.T) {
	setFakePrograms(t, map[string]string{
		"nft": "echo table ip edgeway", "iptables-save": "echo broken >&2; exit 1", "journalctl": `printf '%s\n' "$*"`,
		"ip6tables-save": fmt.Sprintf("/usr/bin/yes | /usr/bin/head -c %d", maxPart+1),
	})
	dir := t.TempDir()
	config := configFile(
		t,
		fmt.Sprintf("version = 1\nsource.file.paths = ['m']\nsource.lastknown.directory = %q\ncontrol.socket = %q",
			dir, filepath.Join(dir, "s")),
	)
	path := filepath.Join(dir, "report.tar.gz")
	code, stdout, stderr := run(t, "bugreport", path, "--config", config)
	if code != exitOK || stderr != "" {
		t.Fatalf("exit %d, err %q", code, stderr)
	}
	got := unpacked(t, path)
	for name, want := range map[string]string{
		"config.toml": `paths = ["`, "versions.txt": "edgeway version ", "doctor.json": `"id": "daemon"`, "nft.txt": "table ip edgeway\n",
		"journal.txt": "-n 500 -u edgeway", "ip6tables.txt": "y\ny\n",
	} {
		if !strings.Contains(got[name], want) || !strings.Contains(stdout, name) {
			t.Errorf("%s lacks %q, or stdout does not name it:\n%.1000s\n%s", name, want, got[name], stdout)
		}
	}
	for _, name := range []string{"status.json", "iptables.txt", "ip6tables.txt"} {
		if !strings.Contains("\n"+got["errors.txt"], "\n"+name+": ") || !strings.Contains(stdout, "not read: "+name) {
			t.Errorf("errors.txt and stdout do not name %s:\n%s", name, got["errors.txt"])
		}
	}
	if n := len(got["ip6tables.txt"]); n != maxPart {
		t.Errorf("%d bytes of a long output, want %d", n, maxPart)
	}
	if code, _, _ := run(
		t,
		"bugreport",
		path,
		"--config",
		config,
	); code != exitFailure ||
		len(unpacked(t, path)) != len(got) {
		t.Errorf("a file that exists is written again: exit %d", code)
	}
}

// secretForms returns text that contains the secret in each form that can occur in logs, errors and rules.
func secretForms(secret string) string {
	quoted, _ := json.Marshal(secret)
	escaped, _ := json.Marshal(string(quoted))
	base := base64.StdEncoding.EncodeToString
	return strings.Join([]string{
		"plain " + secret + " in a line",
		fmt.Sprintf("invalid value %q", secret),
		fmt.Sprintf("error=%q", fmt.Sprintf("value %q", secret)),
		"Authorization: Bearer " + secret,
		"token=" + secret + " level=info",
		"password: " + secret,
		`{"clientSecret":` + string(quoted) + "}",
		`msg="{\"token\":` + string(escaped[1:len(escaped)-1]) + `}"`,
		"https://me:" + url.QueryEscape(
			secret,
		) + "@192.0.2.1/",
		`parse "https://me:` + secret + `@192.0.2.1": it is wrong`,
		base([]byte(secret)),
		"Authorization: Basic " + base([]byte("me:"+secret)),
	}, "\n")
}

func TestBugReportHasNoSecrets(t *testing.T) {
	const token, password, proxy = `sekrit"token/&1`, `pass w"rd-tail/&2`, "proxy/word3"
	const tokenFile, env, old, commented = "sekrit-file-4", "sekrit-env-5", "sekrit-old-6", "sekrit-comment-7"
	cert, key := certificate(t, time.Now().Add(300*24*time.Hour))
	keyText, err := base64.StdEncoding.DecodeString(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	secrets := []string{token, password, proxy, tokenFile, env, commented, key, string(keyText)}
	for line := range strings.Lines(string(keyText)) {
		if !strings.HasPrefix(line, "-----") {
			secrets = append(secrets, strings.TrimSpace(line))
		}
	}
	var everywhere strings.Builder
	for _, secret := range secrets {
		everywhere.WriteString(secretForms(secret) + "\n")
	}
	// No file contains the old token, so the redactor must recognize it by the words that precede it.
	fmt.Fprintf(&everywhere, "Bearer %[1]s\n--token=%[1]s\n\"password\": \"%[1]s\"\nhttps://me:%[1]s@192.0.2.1/\n", old)
	place(t, filepath.Join(dir, "planted"), everywhere.String())
	place(t, filepath.Join(dir, "token"), tokenFile+"\n")
	quoted, _ := json.Marshal(token)
	place(t, filepath.Join(dir, "kubeconfig"), fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: edge
contexts:
- {name: edge, context: {cluster: c, user: u}}
clusters:
- name: c
  cluster: {server: "https://127.0.0.1:1", proxy-url: "http://me:%s@127.0.0.1:1"}
users:
- {name: u, user: {tokenFile: token}}
- name: v
  user:
    token: %s # until May
- {name: t, user: {token: %s}}
- {name: w, user: {username: me, password: '%s'}}
- {name: x, user: {client-certificate-data: %s, client-key-data: %s}}
- {name: y, user: {exec: {command: no, env: [{name: A, value: %s}]}}}
`, proxy, commented, quoted, password, cert, key, env))
	show := "while IFS= read -r l; do printf '%s\\n' \"$l\"; done <" + filepath.Join(dir, "planted")
	setFakePrograms(t, map[string]string{
		"nft":            show,
		"iptables-save":  show + " >&2; exit 1",
		"ip6tables-save": "printf '%s\\n' '" + tokenFile + "' >&2; exit 1",
		"journalctl":     show,
	})
	status := control.Status{
		Summary: everywhere.String(),
		Report: health.Report{
			Faults: []fault.Fault{{ID: "panic", Message: everywhere.String(), Fix: everywhere.String()}},
		},
	}
	config := filepath.Join(filepath.Dir(startFakeDaemon(t, status)), "edgeway.toml")
	text, err := os.ReadFile(config)
	if err != nil {
		t.Fatal(err)
	}
	place(t, config, string(text)+fmt.Sprintf("\nsource.kube.kubeconfig = %q\n", filepath.Join(dir, "kubeconfig")))
	path := filepath.Join(dir, "report.tar.gz")
	code, stdout, stderr := run(t, "bugreport", path, "--config", config)
	if code != exitOK {
		t.Fatalf("exit %d, err %q", code, stderr)
	}
	got := unpacked(t, path)
	got["stdout"], got["stderr"] = stdout, stderr
	for _, name := range []string{"status.json", "nft.txt", "journal.txt"} {
		if !strings.Contains(got[name], redacted) {
			t.Errorf("%s has nothing that was replaced: %.300s", name, got[name])
		}
	}
	for name, content := range got {
		for _, secret := range append(secrets, old, "rd-tail") {
			quoted, _ := json.Marshal(secret)
			again, _ := json.Marshal(string(quoted[1 : len(quoted)-1]))
			for _, form := range []string{
				secret, string(quoted[1 : len(quoted)-1]), string(again[1 : len(again)-1]),
				base64.StdEncoding.EncodeToString([]byte(secret)),
			} {
				if i := strings.Index(content, form); i >= 0 {
					t.Errorf("%s has %.40q: %.200q", name, form, content[max(0, i-60):])
				}
			}
		}
		if strings.HasSuffix(name, ".json") && !json.Valid([]byte(content)) {
			t.Errorf("%s is no JSON any more:\n%s", name, content)
		}
	}
}

func TestRedactorKeepsOrdinaryText(t *testing.T) {
	const text = `Nov 26 08:00:00 edge-1 edgeway[7]: source kube: the token expires at 2027-01-01
kubectl -n kube-system create token edgeway --duration=720h  # put the output into /etc/edgeway/kubeconfig as the token
kubeconfig /etc/edgeway/kubeconfig: users[u].user.tokenFile: /etc/edgeway/token: permission denied
  server: https://192.0.2.1:6443, 10.96.0.10:443 -> 10.244.1.10:8080
{"id": "credential-expiry", "severity": "warning", "object": "kubeconfig /etc/edgeway/kubeconfig"}
`
	if got := newRedactor().redact(text); got != text {
		t.Errorf("%s", got)
	}
	for text, want := range map[string]string{
		"-----BEGIN EC PRIVATE KEY-----\nabcd\n-----END EC PRIVATE KEY-----\nend":     "REDACTED\nend",
		"token eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln is wrong":                    "token REDACTED is wrong",
		"basic_auth_users: {me: $2y$10$abcdefghijklmnopqrstuuT5rDL8zQqWkZ1V3m5Zz0ab}": "basic_auth_users: {me: REDACTED}",
		"key LS0tLS1CRUdJTiBQUklWQVRFIEtFWS0tLS0tCg== is wrong":                       "key REDACTED is wrong",
		`invalid port ":secr" after host`:                                             "invalid port REDACTED after host",
		"?token=abc&x=1":                                                              "?token=REDACTED&x=1",
	} {
		if got := newRedactor().redact(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
}

func TestRedactSecretWithCommonPrefix(t *testing.T) {
	name := configFile(t, "token: abcd\npassword: abcdefgh\n")
	if got := newRedactor(name).redact("it is abcdefgh, not abcd"); got != "it is REDACTED, not REDACTED" {
		t.Error(got)
	}
}
