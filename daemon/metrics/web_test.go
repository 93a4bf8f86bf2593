package metrics

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

func write(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// certificate writes NAME.crt and NAME.key, self-signed for 127.0.0.1, good as its own CA.
func certificate(t *testing.T, dir, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	keyPEM := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})
	write(t, dir, name+".crt", string(crt))
	write(t, dir, name+".key", string(keyPEM))
	pair, err := tls.X509KeyPair(crt, keyPEM)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// serve gives the code and body that a client with this TLS configuration and password gets.
func serve(t *testing.T, w *Web, client *tls.Config, user, password string) (int, error) {
	t.Helper()
	server := httptest.NewUnstartedServer(w.Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	server.Config.ErrorLog = nil
	config, err := w.TLSConfig()
	if err != nil {
		t.Fatal(err)
	}
	scheme := "http://"
	if config != nil {
		server.Listener = tls.NewListener(server.Listener, config)
		scheme = "https://"
	}
	server.Start()
	defer server.Close()
	req, err := http.NewRequest(http.MethodGet, scheme+server.Listener.Addr().String(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	tr := &http.Transport{TLSClientConfig: client}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode, err
}

func load(t *testing.T, path string) *Web {
	t.Helper()
	w, err := LoadWeb(path)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func TestNoWebConfigurationMeansPlainHTTP(t *testing.T) {
	if code, err := serve(t, load(t, ""), nil, "", ""); err != nil || code != 200 {
		t.Errorf("%d %v", code, err)
	}
}

func TestPasswords(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	w := load(t, write(t, t.TempDir(), "web.yml", "basic_auth_users:\n  prometheus: "+string(hash)+"\n"))
	for _, tt := range []struct {
		user, password string
		want           int
	}{{"prometheus", "secret", 200}, {"prometheus", "secret", 200}, {"prometheus", "wrong", 401}, {"nobody", "secret", 401}, {"", "", 401}} {
		if code, err := serve(t, w, nil, tt.user, tt.password); err != nil || code != tt.want {
			t.Errorf("%q %q: %d %v, want %d", tt.user, tt.password, code, err, tt.want)
		}
	}
}

func TestTheHashForUnknownUsersIsAHash(t *testing.T) {
	if cost, err := bcrypt.Cost([]byte(unknown)); err != nil || cost != bcrypt.DefaultCost {
		t.Errorf("cost %d, %v", cost, err)
	}
}

func TestTLSWithClientCertificatesAndRenewal(t *testing.T) {
	dir := t.TempDir()
	pool := x509.NewCertPool()
	first := certificate(t, dir, "server")
	pool.AddCert(first.Leaf)
	client := certificate(t, dir, "client")
	w := load(t, write(t, dir, "web.yml", `tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_ca_file: client.crt
  min_version: TLS13
`))
	with := &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{client}}
	if code, err := serve(t, w, with, "", ""); err != nil || code != 200 {
		t.Errorf("client with a certificate: %d %v", code, err)
	}
	if _, err := serve(t, w, &tls.Config{RootCAs: pool}, "", ""); err == nil {
		t.Error("a client without a certificate was served")
	}
	if _, err := serve(t, w, &tls.Config{RootCAs: pool, Certificates: with.Certificates, MaxVersion: tls.VersionTLS12}, "", ""); err == nil {
		t.Error("a client of TLS 1.2 was served")
	}
	renewed := certificate(t, dir, "server")
	if _, err := serve(t, w, with, "", ""); err == nil {
		t.Error("the old certificate is still used")
	}
	pool.AddCert(renewed.Leaf)
	if code, err := serve(t, w, with, "", ""); err != nil || code != 200 {
		t.Errorf("after the renewal: %d %v", code, err)
	}
}

func TestAWrongWebConfigurationIsRefused(t *testing.T) {
	dir := t.TempDir()
	certificate(t, dir, "server")
	const files = "tls_server_config: {cert_file: server.crt, key_file: server.key"
	for content, want := range map[string]string{
		"tls_server_confg: {}":                                    "tls_server_confg",
		"tls_server_config: {cert_file: a, key_file: b}":          "certificate",
		"basic_auth_users: {prometheus: secret}":                  `hash of "prometheus"`,
		files + ", cipher_suites: [X]}":                           "cipher_suites",
		files + ", min_version: TLS10}":                           "min_version",
		files + ", client_ca_file: server.key}":                   "no certificate in it",
		files + ", client_auth_type: Perhaps}":                    "client_auth_type",
		files + ", client_auth_type: RequireAndVerifyClientCert}": "needs client_ca_file",
	} {
		if _, err := LoadWeb(write(t, dir, "web.yml", content)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", content, err, want)
		}
	}
	if _, err := LoadWeb(filepath.Join(dir, "none.yml")); err == nil {
		t.Error("a missing file is no error")
	}
}
