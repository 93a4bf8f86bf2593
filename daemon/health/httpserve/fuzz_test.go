package httpserve

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
)

type closed struct{ net.Listener }

func (closed) Accept() (net.Conn, error) { return nil, net.ErrClosed }
func (closed) Close() error              { return nil }
func (closed) Addr() net.Addr            { return &net.TCPAddr{} }

// FuzzWebConfig sets metrics.web_config to arbitrary files. The server must accept exactly the files that
// ValidateWebConfig accepts when the daemon starts.
func FuzzWebConfig(f *testing.F) {
	dir := f.TempDir()
	certificate(f, dir)
	path := filepath.Join(dir, "web.yml")
	f.Add("tls_server_config: {cert_file: tls.crt, key_file: tls.key}\nbasic_auth_users: {prometheus: '$2y$10$X0h1gDsPszWURQaxFh.zoubFi6DXncSjhoQNJgRrnGs7EsimhC7zG'}\n")
	f.Add("tls_server_config: {cert_file: tls.crt, key_file: tls.key, min_version: TLS13, cipher_suites: [x], curve_preferences: [X25519], client_auth_type: RequireAndVerifyClientCert, client_ca_file: tls.crt}\n")
	f.Add("http_server_config: {http2: false, headers: {Strict-Transport-Security: \"\\e[2J\\r\\nX: y\"}}\nrate_limit: {interval: 1s, burst: -1}\n")
	f.Add("basic_auth_users: {\"\\0\": x, a: ''}\n")
	f.Add("a: &a [*a]\n")
	f.Add("")
	f.Fuzz(func(t *testing.T, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		refused := ValidateWebConfig(path)
		err := serve(closed{}, &http.Server{}, path, slog.New(slog.DiscardHandler))
		if served := errors.Is(err, net.ErrClosed); served != (refused == nil) {
			t.Errorf("the check says %v, serving %v", refused, err)
		}
	})
}
