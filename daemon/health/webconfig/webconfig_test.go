package webconfig

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"edgeway/daemon/regular"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// certify writes NAME.crt, which signs itself for 127.0.0.1 and a DNS name, and NAME.key.
func certify(t *testing.T, dir, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		DNSNames: []string{name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: raw})
	write(t, filepath.Join(dir, name+".crt"), string(crt))
	write(t, filepath.Join(dir, name+".key"), string(secret))
	pair, err := tls.X509KeyPair(crt, secret)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func hashOf(t *testing.T, password string) string {
	t.Helper()
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(hash)
}

// serve gives the address of a server with a configuration.
func serve(t *testing.T, path string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		ReadHeaderTimeout: time.Minute, ErrorLog: log.New(io.Discard, "", 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }),
	}
	t.Cleanup(func() { server.Close() })
	go func() { _ = Serve(l, server, path) }()
	return l.Addr().String()
}

// get gives the status of an answer, and the answer; 0 without one.
func get(t *testing.T, url, user, password string, tlsConfig *tls.Config) (int, string, http.Header) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	client := http.Client{Transport: &http.Transport{TLSClientConfig: tlsConfig, DisableKeepAlives: true, ForceAttemptHTTP2: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error(), nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body), resp.Header
}

func TestPasswordsAreReadAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "web.yml")
	write(t, path, "basic_auth_users: {one: "+hashOf(t, "first")+"}\nhttp_server_config: {http2: true, headers: {X-Frame-Options: deny}}\n")
	url := "http://" + serve(t, path)
	want := func(user, password string, want int) {
		t.Helper()
		code, body, header := get(t, url, user, password, nil)
		if code != want || header.Get("X-Frame-Options") != "deny" {
			t.Errorf("%s with %q: %d %s %v, want %d", user, password, code, body, header, want)
		}
	}
	for range 2 { // compared, and known
		want("one", "first", 200)
		want("one", "wrong", 401)
		want("other", "first", 401)
		want("other", "fakepassword", 401)
	}
	want("", "", 401)
	write(t, path, "basic_auth_users: {one: "+hashOf(t, "second")+"}\nhttp_server_config: {headers: {X-Frame-Options: deny}}\n")
	want("one", "first", 401)
	want("one", "second", 200)
	write(t, path, "basic_auth_users: {two: "+hashOf(t, "second")+"}\nhttp_server_config: {headers: {X-Frame-Options: deny}}\n")
	want("one", "second", 401)
	write(t, path, "no: file\n")
	if code, body, _ := get(t, url, "two", "second", nil); code != 500 || strings.Contains(body, path) {
		t.Errorf("with a damaged file: %d %s, want 500", code, body)
	}
}

func TestTLSAndClientCertificates(t *testing.T) {
	dir := t.TempDir()
	server, good, bad := certify(t, dir, "server"), certify(t, dir, "good"), certify(t, dir, "bad")
	write(t, filepath.Join(dir, "clients.crt"), "")
	var clients []byte
	for _, name := range []string{"good", "bad"} {
		raw, err := os.ReadFile(filepath.Join(dir, name+".crt"))
		if err != nil {
			t.Fatal(err)
		}
		clients = append(clients, raw...)
	}
	write(t, filepath.Join(dir, "clients.crt"), string(clients))
	path := filepath.Join(dir, "web.yml")
	write(t, path, `tls_server_config:
  cert_file: server.crt
  key_file: server.key
  client_ca_file: clients.crt
  client_auth_type: RequireAndVerifyClientCert
  client_allowed_sans: [good]
  min_version: TLS13
  cipher_suites: [TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256]
  curve_preferences: [X25519]
  prefer_server_cipher_suites: true
`)
	url := "https://" + serve(t, path)
	pool := x509.NewCertPool()
	for _, raw := range server.Certificate {
		cert, err := x509.ParseCertificate(raw)
		if err != nil {
			t.Fatal(err)
		}
		pool.AddCert(cert)
	}
	client := func(certs ...tls.Certificate) *tls.Config { return &tls.Config{RootCAs: pool, Certificates: certs} }
	if code, body, _ := get(t, url, "", "", client(good)); code != 200 || body != "HTTP/1.1" {
		t.Errorf("client with the right certificate: %d %s", code, body)
	}
	old := client(good)
	old.MaxVersion = tls.VersionTLS12
	for name, c := range map[string]*tls.Config{"no certificate": client(), "another name": client(bad), "TLS 1.2": old} {
		if code, body, _ := get(t, url, "", "", c); code != 0 {
			t.Errorf("client with %s: %d %s", name, code, body)
		}
	}
	write(t, path, "tls_server_config:\n") // it must not become plain HTTP
	if code, body, _ := get(t, url, "", "", client(good)); code != 0 {
		t.Errorf("with TLS taken from the file: %d %s", code, body)
	}
}

func TestCheckSaysWhatIsWrong(t *testing.T) {
	dir := t.TempDir()
	certify(t, dir, "x")
	const pair = "cert_file: x.crt, key_file: x.key"
	for text, want := range map[string]string{
		"": "", "tls_server_config: {" + pair + "}": "", "tls_server_config:\nbasic_auth_users:\n": "",
		"basic_auth_users: {a: secret}":                                                                       "htpasswd",
		"basic_auth_users: [a]":                                                                               "basic_auth_users",
		"rate_limit: {burst: 1}":                                                                              `unknown field "rate_limit"`,
		"http_server_config: {headers: {Set-Cookie: a}}":                                                      "Set-Cookie",
		"tls_server_config: {}":                                                                               "cert_file is missing",
		"tls_server_config: {cert_file: x.crt}":                                                               "key_file is missing",
		"tls_server_config: {cert_file: y.crt, key_file: x.key}":                                              "y.crt",
		"tls_server_config: {cert_file: x.key, key_file: x.key}":                                              "certificate",
		"tls_server_config: {" + pair + ", min_version: SSL3}":                                                "min_version",
		"tls_server_config: {" + pair + ", cipher_suites: [ROT13]}":                                           "ROT13",
		"tls_server_config: {" + pair + ", curve_preferences: [round]}":                                       "round",
		"tls_server_config: {" + pair + ", client_auth_type: Perhaps}":                                        "Perhaps",
		"tls_server_config: {" + pair + ", client_ca_file: x.crt}":                                            "client_auth_type",
		"tls_server_config: {" + pair + ", client_ca: no, client_auth_type: " + "RequireAndVerifyClientCert}": "no certificate",
	} {
		path := filepath.Join(dir, "web.yml")
		write(t, path, text)
		err := Check(path)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", text, err, want)
		}
	}
	if err := Check(filepath.Join(dir, "none.yml")); err == nil {
		t.Error("no error for a file that does not exist")
	}
	if err := Check(""); err != nil {
		t.Error(err)
	}
}

// The file is read for each connection, so one that is put in its place must neither fill the memory nor stop the server.
func TestFilesAreReadWithinBounds(t *testing.T) {
	dir := t.TempDir()
	certify(t, dir, "x")
	path, big := filepath.Join(dir, "web.yml"), filepath.Join(dir, "big")
	write(t, big, "#"+strings.Repeat("x", regular.Small))
	for _, c := range []struct{ cert, key string }{{"/dev/null", "x.key"}, {"x.crt", "/dev/null"}, {"big", "x.key"}, {"x.crt", "big"}} {
		write(t, path, "tls_server_config: {cert_file: "+c.cert+", key_file: "+c.key+"}")
		if err := Check(path); !errors.Is(err, regular.ErrIrregular) && !errors.Is(err, regular.ErrTooLarge) {
			t.Errorf("%+v: error %v", c, err)
		}
	}
	if err := Check("/dev/null"); !errors.Is(err, regular.ErrIrregular) {
		t.Errorf("a device: error %v", err)
	}
	if err := Check(big); !errors.Is(err, regular.ErrTooLarge) {
		t.Errorf("a comment of more than 1 MiB: error %v", err)
	}
}
