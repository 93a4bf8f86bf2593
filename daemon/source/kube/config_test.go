package kube

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestInvalidKubeconfigErrors(t *testing.T) {
	const head = "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
	const cluster = "clusters: [{name: k, cluster: {server: 'https://192.0.2.1'}}]\n"
	garbage := base64.StdEncoding.EncodeToString([]byte("garbage"))
	for name, c := range map[string]struct{ text, want string }{
		"no YAML":         {"{", "cannot be parsed"},
		"no kubeconfig":   {"kind: Pod\napiVersion: v1\n", "cannot be parsed"},
		"empty":           {"", "current-context: missing or empty"},
		"unknown context": {"current-context: x\n", `current-context: there is no context "x"`},
		"unknown cluster": {head, `contexts[c].context.cluster: there is no cluster "k"`},
		"unknown user":    {head + cluster, `contexts[c].context.user: there is no user "u"`},
		"no server":       {head + "clusters: [{name: k, cluster: {}}]\n", "clusters[k].cluster.server: missing or empty"},
		"authority file": {
			head + "clusters: [{name: k, cluster: {server: 'https://192.0.2.1', certificate-authority: ca.crt}}]\n",
			"clusters[k].cluster.certificate-authority: open DIR/ca.crt: no such file or directory",
		},
		"authority data": {
			head + "clusters: [{name: k, cluster: {server: 'https://192.0.2.1', certificate-authority-data: " +
				garbage + "}}]\n",
			"clusters[k].cluster.certificate-authority-data: no readable certificate",
		},
		"certificate file": {
			head + cluster + "users: [{name: u, user: {client-certificate: a.crt, client-key: a.key}}]\n",
			"users[u].user.client-certificate: open DIR/a.crt: no such file or directory",
		},
		"certificate is a directory": {
			head + cluster + "users: [{name: u, user: {client-certificate: ., client-key: a.key}}]\n",
			"users[u].user.client-certificate: open DIR: not a regular file",
		},
		"certificate data": {
			head + cluster + "users: [{name: u, user: {client-certificate-data: " + garbage + ", client-key-data: " +
				garbage + "}}]\n",
			"users[u].user.client-certificate-data and client-key-data: tls: failed to find any PEM data",
		},
		"token file": {
			head + cluster + "users: [{name: u, user: {tokenFile: token}}]\n",
			"users[u].user.tokenFile: open DIR/token: no such file or directory",
		},
		"exec plugin": {
			head + cluster + "users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never, " +
				"command: gimme}}}]\n",
			`users[u].user.exec: "gimme" is not allowed to run; to allow exec plugins`,
		},
		"auth provider": {
			head + cluster + "users: [{name: u, user: {auth-provider: {name: oidc}}}]\n",
			`users[u].user.auth-provider: "oidc" is not supported`,
		},
		"server URL": {
			head + "clusters: [{name: k, cluster: {server: 'https://[::1'}}]\nusers: [{name: u, user: {}}]\n",
			`clusters[k].cluster.server: host must be a URL or a host:port pair: "https://[::1"`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "kubeconfig")
			if err := os.WriteFile(path, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := New(Options{Kubeconfig: path, Logger: slog.New(slog.DiscardHandler)})
			want := strings.ReplaceAll(c.want, "DIR", dir)
			if err == nil || !strings.Contains(err.Error(), want) ||
				!strings.HasPrefix(err.Error(), "kubeconfig "+path+": ") {
				t.Errorf("error %v\n want it to have %q", err, want)
			}
		})
	}
}

func TestMissingExecPluginError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: "https://192.0.2.1"}}],
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never,
command: no-such-plugin}}}]}`
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := New(Options{Kubeconfig: path, AllowExecPlugins: true, Logger: slog.New(slog.DiscardHandler)})
	want := "kubeconfig " + path + `: users[u].user.exec.command: exec: "no-such-plugin": executable file not found in $PATH`
	if err == nil || err.Error() != want {
		t.Errorf("error %v\n want %s", err, want)
	}
}

// The error must wrap its cause, because a later start of the daemon can succeed once the file system that contains the
// exec plugin is mounted.
func TestMissingExecPluginFileHasCause(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	mustWrite(t, path, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: "https://192.0.2.1"}}],
users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, interactiveMode: Never,
command: /mnt/missing/plugin}}}]}`)
	_, err := New(Options{Kubeconfig: path, AllowExecPlugins: true, Logger: slog.New(slog.DiscardHandler)})
	if !errors.Is(err, syscall.ENOENT) || Advice(err) == "" {
		t.Errorf("error %v with the fix %q", err, Advice(err))
	}
}

func TestMissingKubeconfigError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kubeconfig")
	_, err := New(Options{Kubeconfig: path, Logger: slog.New(slog.DiscardHandler)})
	if want := "kubeconfig: open " + path + ": no such file or directory"; err == nil || err.Error() != want {
		t.Errorf("error %v\n want %s", err, want)
	}
}

func TestInvalidKubeconfigAdvice(t *testing.T) {
	const user = "contexts: [{name: c, context: {cluster: k}}]\nclusters: [{name: k, cluster: {server: 'https://192.0.2.1', %s}}]\n"
	for want, text := range map[string]string{
		"base64 -w0":            strings.Replace(user, "%s", "certificate-authority-data: '%'", 1),
		"use-context":           "kind: Config\n",
		"get-contexts":          "current-context: x\n",
		fixCert:                 "current-context: c\n" + strings.Replace(user, "%s", "certificate-authority-data: AAAA", 1),
		"skip-tls-verify":       "current-context: c\n" + strings.Replace(user, "%s", "insecure-skip-tls-verify: true, certificate-authority: ca.crt", 1),
		`with "kubectl config"`: "{",
	} {
		dir := t.TempDir()
		mustWrite(t, dir+"/kubeconfig", text)
		mustWrite(t, dir+"/ca.crt", newAuthority(t).pem())
		_, err := New(Options{Kubeconfig: dir + "/kubeconfig", Logger: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(Advice(err), want) {
			t.Errorf("error %v has the fix %q, want %q", err, Advice(err), want)
		}
	}
}
