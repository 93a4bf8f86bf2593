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
	"strings"
	"testing"
	"time"
)

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

func TestKubeconfigMistakes(t *testing.T) {
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
	at := func(field string) string { return "kubeconfig DIR/kubeconfig: " + field }
	const server, token = "https://192.0.2.1:6443", "token: " + jwt
	authority := "certificate-authority-data: " + ca
	for _, m := range []mistake{
		{"not there", "edgeway.toml", `"kubeconfig"`, `"kube.config"`, "kubeconfig: open DIR/kube.config", "", false},
		{"home folder", "edgeway.toml", `"kubeconfig"`, `"~/.kube/config"`, "kubeconfig: open DIR/~/.kube/config", "", false},
		{"a folder", "edgeway.toml", `"kubeconfig"`, `"."`, "kubeconfig: open DIR", "", false},
		{"no YAML", file, "", "{", place, "", false},
		{"a Secret", file, "kind: Config", "kind: Secret", place, "", false},
		{"empty", file, "", "", at("current-context"), "", false},
		{"no current context", file, "current-context: edge\n", "", at("current-context"), "", false},
		{"other context", file, "current-context: edge", "current-context: edeg", at("current-context"), `"edeg"`, false},
		{"other cluster", file, "cluster: c,", "cluster: k,", at("contexts[edge].context.cluster"), `"k"`, false},
		{"other user", file, "user: u}", "user: v}", at("contexts[edge].context.user"), `"v"`, false},
		{"no server", file, "server: " + server, "server: ''", at("clusters[c].cluster.server"), "", false},
		{"server that is no URL", file, server, "'https://[::1'", at("clusters[c].cluster.server"), "", false},
		{"file of the authority", file, authority, "certificate-authority: ca.crt", at("clusters[c].cluster.certificate-authority"), "", false},
		{"authority that is not PEM", file, authority, "certificate-authority-data: Z2FyYmFnZQ==", at("clusters[c].cluster.certificate-authority-data"), "", false},
		{"authority that is not base64", file, authority, "certificate-authority-data: -----BEGIN", place, "base64", false},
		{"token file that is empty", file, token, "tokenFile: empty", at("users[u].user.tokenFile"), "", false},
		{"certificate without a key", file, token, "client-certificate-data: " + ca, place, "client-certificate-data", false},
		{"key of another certificate", file, token, "client-certificate-data: " + ca + "\n    client-key-data: " + oldKey, place, "client-key-data", false},
		{"certificate that has expired", file, token, "client-certificate-data: " + old + "\n    client-key-data: " + oldKey, place, "expired", false},
		{"program", file, token, "exec: {apiVersion: client.authentication.k8s.io/v1, command: aws, interactiveMode: Never}", at("users[u].user.exec"), "source.kube.allow_exec_plugins", false},
		{"provider", file, token, "auth-provider: {name: oidc}", at("users[u].user.auth-provider"), `"oidc"`, false},
		{"no verification", file, authority, "insecure-skip-tls-verify: true", place, "insecure-skip-tls-verify", true},
		{"no verification, with an authority", file, authority, authority + "\n    insecure-skip-tls-verify: true", place, "insecure-skip-tls-verify", false},
		{"no TLS", file, server, "http://192.0.2.1:8080", place, "http://192.0.2.1:8080", true},
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
		if code != exitOK || !strings.HasPrefix(stderr, "WARNING: kubeconfig "+path+": ") ||
			strings.Count(stderr, "\n") != 1 ||
			!strings.Contains(stderr, "chgrp edgeway "+path+" && chmod 640 "+path) {
			t.Errorf("exit %d:\n%s", code, stderr)
		}
	})
}
