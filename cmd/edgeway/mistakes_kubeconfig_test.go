package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// certificate gives one that is valid until then, and its key, in base64 of PEM.
func certificate(t *testing.T, until time.Time) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "edge"}, NotBefore: until.Add(-365 * 24 * time.Hour), NotAfter: until,
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalECPrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("EC PRIVATE KEY", keyDER)
}

func TestMistakesInTheKubeconfig(t *testing.T) {
	t.Parallel()
	ca, _ := certificate(t, time.Now().Add(300*24*time.Hour))
	old, oldKey := certificate(t, time.Now().Add(-time.Hour))
	const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2ln"
	good := `apiVersion: v1
kind: Config
current-context: edge
contexts:
- name: edge
  context: {cluster: c, user: u}
clusters:
- name: c
  cluster:
    server: https://192.0.2.1:6443
    certificate-authority-data: ` + ca + `
users:
- name: u
  user:
    token: ` + jwt + "\n"
	const file, place = "kubeconfig", "kubeconfig DIR/kubeconfig"
	const server, token = "https://192.0.2.1:6443", "token: " + jwt
	authority := "certificate-authority-data: " + ca
	for _, m := range []mistake{
		{"not there", "edgeway.toml", `"kubeconfig"`, `"kube.config"`, "open DIR/kube.config", "no such file or directory", "create it, or correct the path", false},
		{"home folder", "edgeway.toml", `"kubeconfig"`, `"~/.kube/config"`, "open DIR/~/.kube/config", "no such file or directory", "~ is not expanded", false},
		{"a folder", "edgeway.toml", `"kubeconfig"`, `"."`, "open DIR", "it is not a regular file", "name a file", false},
		{"no YAML", file, "", "{", place, "it does not parse", "kubectl config", false},
		{"a Secret", file, "kind: Config", "kind: Secret", place, "it does not parse", "kubectl config", false},
		{"empty", file, "", "", place, "current-context: it is missing or empty", "kubectl config use-context", false},
		{"no current context", file, "current-context: edge\n", "", place, "current-context: it is missing or empty", "kubectl config use-context", false},
		{"other context", file, "current-context: edge", "current-context: edeg", place, `contexts has no "edeg"`, "kubectl config get-contexts", false},
		{"other cluster", file, "cluster: c,", "cluster: k,", place, `clusters has no "k"`, "kubectl config get-clusters", false},
		{"other user", file, "user: u}", "user: v}", place, `users has no "v"`, "kubectl config get-users", false},
		{"no server", file, "server: " + server, "server: ''", place, "clusters[c].cluster.server: it is missing or empty", "write a URL", false},
		{"server that is no URL", file, server, "'https://[::1'", place, "clusters[c].cluster.server", "write a URL", false},
		{"file of the authority", file, authority, "certificate-authority: ca.crt", place + ": clusters[c].cluster.certificate-authority: open DIR/ca.crt", "no such file", "create it", false},
		{"authority that is not PEM", file, authority, "certificate-authority-data: Z2FyYmFnZQ==", place, "holds no certificate", "write PEM", false},
		{"authority that is not base64", file, authority, "certificate-authority-data: -----BEGIN", place, "illegal base64", "base64 -w0", false},
		{"token file that is empty", file, token, "tokenFile: empty", place + ": users[u].user.tokenFile", "is empty", "write the content", false},
		{"certificate without a key", file, token, "client-certificate-data: " + ca, place, "users[u].user.client-certificate-data and client-key", "write PEM", false},
		{"key of another certificate", file, token, "client-certificate-data: " + ca + "\n    client-key-data: " + oldKey, place, "does not match", "take the key that belongs", false},
		{"certificate that has expired", file, token, "client-certificate-data: " + old + "\n    client-key-data: " + oldKey, place, "has expired", "replace it", false},
		{"program", file, token, "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}", place, `it would run "aws"`, "source.kube.allow_exec_plugins", false},
		{"provider", file, token, "auth-provider: {name: oidc}", place, `"oidc" is not supported`, "use a token", false},
		{"token as a Secret has it", file, token, "token: " + base64.StdEncoding.EncodeToString([]byte(jwt)), place, "it is in base64", "base64 -d", false},
		{"token on two lines", file, token, "token: |\n      " + jwt + "\n      " + jwt, place, "white space", "kubectl config set-credentials", false},
		{"no credentials", file, "{cluster: c, user: u}", "{cluster: c}", place, "no credentials", "kubectl config set-credentials", true},
		{"server of a control-plane host", file, server, "https://127.0.0.1:6443", place, "is this host itself", "address of a control-plane host", true},
		{"server that is a ClusterIP", file, server, "https://10.96.0.1", place, "is a ClusterIP", "address of a control-plane host", false},
		{"server of the cluster's DNS", file, server, "https://kubernetes.default.svc", place, "the cluster's own DNS", "address of a control-plane host", false},
		{"no authority", file, authority + "\n", "\n", place, "certificate-authority: it is missing", "--certificate-authority=ca.crt", true},
		{"no verification", file, authority, "insecure-skip-tls-verify: true", place, "insecure-skip-tls-verify is set", "Remove it", true},
		{"no verification, with an authority", file, authority, authority + "\n    insecure-skip-tls-verify: true", place, "insecure flag", "remove insecure-skip-tls-verify", false},
		{"no TLS", file, server, "http://192.0.2.1:8080", place, "without TLS", "Use https", true},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.check(t, map[string]string{
				"edgeway.toml": "version = 1\nproxy.service_cidrs = [\"10.96.0.0/16\"]\nsource.kube.kubeconfig = \"kubeconfig\"\n",
				file:           good, "empty": "",
			})
		})
	}
	t.Run("readable by all", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		write := func(name, text string, mode os.FileMode) string {
			place := filepath.Join(dir, name)
			if err := os.WriteFile(place, []byte(text), mode); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(place, mode); err != nil {
				t.Fatal(err)
			}
			return place
		}
		path := write(file, good, 0o644)
		config := write("edgeway.toml", "version = 1\nsource.kube.kubeconfig = \"kubeconfig\"\n", 0o600)
		code, _, stderr := run(t, "config", "check", "--config", config)
		want := "WARNING: kubeconfig " + path + ": " + path + " holds a secret and can be read by every user (mode 0644). Run: chgrp edgeway " +
			path + " && chmod 640 " + path + "\n"
		if code != exitOK || stderr != want {
			t.Errorf("exit %d:\n%swant\n%s", code, stderr, want)
		}
	})
}
