// Package webconfig serves HTTP as a web configuration file says, with the format of Prometheus' exporters: TLS and passwords.
//
// The exporters' own library (exporter-toolkit 0.20) links six more modules, among them a JWT parser and vsock, and makes the program
// a fifth bigger: it imports html/template, with which Go's linker keeps every exported method. Of the format rate_limit is missing.
// HTTP/2 is not served, whatever http2 says: a scrape needs one request, and limits count connections.
package webconfig

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"slices"

	"golang.org/x/crypto/bcrypt"
	"sigs.k8s.io/yaml"

	"edgeway/daemon/regular"
)

type file struct {
	TLS  *tlsSettings `json:"tls_server_config"`
	HTTP struct {
		HTTP2   bool              `json:"http2"` // without effect
		Headers map[string]string `json:"headers"`
	} `json:"http_server_config"`
	Users map[string]string `json:"basic_auth_users"` // the hashes of their passwords, by bcrypt
}

// Check says what is wrong with a file. Without one there is nothing to check.
func Check(path string) error {
	if path == "" {
		return nil
	}
	f, err := read(path)
	if err == nil && f.TLS != nil {
		_, err = f.TLS.config()
	}
	return err
}

// HasUsers reports whether the file asks every client for a password, as far as it can be read.
func HasUsers(path string) bool {
	if path == "" {
		return false
	}
	f, err := read(path)
	return err == nil && len(f.Users) > 0
}

func read(path string) (*file, error) {
	text, err := regular.Read(path, regular.Small)
	if err != nil {
		return nil, err
	}
	f := &file{}
	if err := yaml.UnmarshalStrict(text, f); err != nil {
		return nil, err
	}
	for user, hash := range f.Users {
		if _, err := bcrypt.Cost([]byte(hash)); err != nil {
			return nil, fmt.Errorf("basic_auth_users: %q: %w: htpasswd -B makes such a hash", user, err)
		}
	}
	allowed := []string{"Content-Security-Policy", "Strict-Transport-Security", "X-Content-Type-Options", "X-Frame-Options", "X-XSS-Protection"}
	for name := range f.HTTP.Headers {
		if !slices.Contains(allowed, name) {
			return nil, fmt.Errorf("http_server_config: header %q: only %v can be set", name, allowed)
		}
	}
	if f.TLS != nil {
		f.TLS.folder = filepath.Dir(path)
	}
	return f, nil
}

// Serve serves connections until the server is closed. The file is read for each of them: it, its certificates and
// passwords can be replaced at any time, but whether there is TLS is decided now. Without a file there is neither.
func Serve(listener net.Listener, server *http.Server, path string) error {
	if path == "" {
		return server.Serve(listener)
	}
	if err := Check(path); err != nil {
		return err
	}
	f, err := read(path)
	if err != nil {
		return err
	}
	server.Handler = &guard{path: path, next: server.Handler}
	if f.TLS == nil {
		return server.Serve(listener)
	}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.TLSConfig = &tls.Config{
		MinVersion: tls.VersionTLS12, // the file's own takes its place
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			f, err := read(path)
			switch {
			case err != nil:
				return nil, err
			case f.TLS == nil:
				return nil, errors.New("tls_server_config is gone: restart to serve without it")
			}
			return f.TLS.config()
		},
	}
	return server.ServeTLS(listener, "", "")
}
