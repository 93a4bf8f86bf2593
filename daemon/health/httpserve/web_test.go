package httpserve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

func writeFile(t testing.TB, path string, content []byte) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
}

func certificate(t testing.TB, dir string) *x509.CertPool {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "edgeway"},
		NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 98, 3)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	rawKey, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	crt := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	writeFile(t, filepath.Join(dir, "tls.crt"), crt)
	writeFile(t, filepath.Join(dir, "tls.key"), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: rawKey}))
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(crt)
	return pool
}

func TestWebConfigTLSAndPasswords(t *testing.T) {
	dir := t.TempDir()
	pool := certificate(t, dir)
	hash, err := bcrypt.GenerateFromPassword([]byte("secret"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(dir, "web.yml")
	writeFile(t, config, []byte("tls_server_config: {cert_file: tls.crt, key_file: tls.key}\nbasic_auth_users: {prometheus: '"+string(hash)+"'}\n"))
	free, err := net.Listen("tcp", "127.0.98.3:0") // other programs rarely take ports of this address
	if err != nil {
		t.Fatal(err)
	}
	addr := free.Addr().String()
	free.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go Server{
		Name: "test", Addr: addr, WebConfig: config, Logger: slog.New(slog.DiscardHandler),
		Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}.Run(ctx)

	client := http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool},
		DisableKeepAlives: true,
	}}
	get := func(url, password string) (int, error) {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		if password != "" {
			req.SetBasicAuth("prometheus", password)
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		resp.Body.Close()
		return resp.StatusCode, nil
	}
	deadline := time.Now().Add(30 * time.Second)
	for _, err := get("https://"+addr, ""); err != nil; _, err = get("https://"+addr, "") {
		if time.Now().After(deadline) {
			t.Fatalf("not serving: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	for password, want := range map[string]int{"secret": 200, "wrong": 401, "": 401} {
		if code, err := get("https://"+addr, password); err != nil || code != want {
			t.Errorf("password %q: %d %v, want %d", password, code, err, want)
		}
	}
	if code, err := get("http://"+addr, "secret"); err == nil && code == 200 {
		t.Error("plain HTTP is served beside TLS")
	}
}
