package metrics

import (
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/crypto/bcrypt"
	"sigs.k8s.io/yaml"
)

// Web is the protection of the metrics server: TLS and passwords. It reads the web configuration file
// of the Prometheus exporters, as far as the keys below go; any other key is an error, as leaving it
// out could leave the server open. (Their library, exporter-toolkit v0.20, does the same and more but
// makes the program 4.3 MB larger, a quarter of its size.)
type Web struct {
	TLS   *webTLS           `json:"tls_server_config"`
	Users map[string]string `json:"basic_auth_users"` // name: bcrypt hash
}

type webTLS struct {
	CertFile   string `json:"cert_file"`
	KeyFile    string `json:"key_file"`
	ClientCAs  string `json:"client_ca_file"`
	ClientAuth string `json:"client_auth_type"`
	MinVersion string `json:"min_version"`
}

// LoadWeb reads a web configuration file and the certificates that it names. Relative names count from
// the file's folder. An empty path gives a Web without protection.
func LoadWeb(path string) (*Web, error) {
	w := &Web{}
	if path == "" {
		return w, nil
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("web configuration: %w", err)
	}
	if err := yaml.UnmarshalStrict(raw, w); err != nil {
		return nil, fmt.Errorf("web configuration %s: %w", path, err)
	}
	if w.TLS != nil {
		w.TLS.resolve(filepath.Dir(path))
		if _, err := w.TLSConfig(); err != nil {
			return nil, fmt.Errorf("web configuration %s: tls_server_config: %w", path, err)
		}
	}
	for user, hash := range w.Users {
		if _, err := bcrypt.Cost([]byte(hash)); err != nil {
			return nil, fmt.Errorf("web configuration %s: basic_auth_users: hash of %q: %w", path, user, err)
		}
	}
	return w, nil
}

func (t *webTLS) resolve(dir string) {
	for _, name := range []*string{&t.CertFile, &t.KeyFile, &t.ClientCAs} {
		if *name != "" && !filepath.IsAbs(*name) {
			*name = filepath.Join(dir, *name)
		}
	}
}

// TLSConfig gives nil for a server without TLS. The certificate is read again at each handshake, so
// that a renewed one needs no restart.
func (w *Web) TLSConfig() (*tls.Config, error) {
	if w.TLS == nil {
		return nil, nil
	}
	t := w.TLS
	load := func() (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		return &cert, err
	}
	if _, err := load(); err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	c := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return load() },
		NextProtos:     []string{"http/1.1"},
	}
	switch t.MinVersion {
	case "", "TLS12":
	case "TLS13":
		c.MinVersion = tls.VersionTLS13
	default:
		return nil, fmt.Errorf("min_version %q is neither TLS12 nor TLS13", t.MinVersion)
	}
	return c, t.clients(c)
}

var clientAuth = [...]tls.ClientAuthType{
	tls.NoClientCert, tls.RequestClientCert, tls.RequireAnyClientCert, tls.VerifyClientCertIfGiven, tls.RequireAndVerifyClientCert,
}

// clients sets which clients may connect. A CA without a type means that a certificate is required.
func (t *webTLS) clients(c *tls.Config) error {
	if t.ClientCAs != "" {
		pem, err := os.ReadFile(t.ClientCAs)
		if err != nil {
			return fmt.Errorf("client_ca_file: %w", err)
		}
		c.ClientCAs = x509.NewCertPool()
		if !c.ClientCAs.AppendCertsFromPEM(pem) {
			return errors.New("client_ca_file: no certificate in it")
		}
		c.ClientAuth = tls.RequireAndVerifyClientCert
	}
	if t.ClientAuth == "" {
		return nil
	}
	for _, a := range clientAuth {
		if a.String() != t.ClientAuth {
			continue
		}
		if a >= tls.VerifyClientCertIfGiven && t.ClientCAs == "" {
			return fmt.Errorf("client_auth_type %s needs client_ca_file", t.ClientAuth)
		}
		c.ClientAuth = a
		return nil
	}
	return fmt.Errorf("client_auth_type %q is not known", t.ClientAuth)
}

// Protect asks for a name and a password when there are users.
func (w *Web) Protect(next http.Handler) http.Handler {
	if len(w.Users) == 0 {
		return next
	}
	g := &guard{users: w.Users, good: map[string]string{}}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); ok && g.admits(user, password) {
			next.ServeHTTP(rw, r)
			return
		}
		rw.Header().Set("WWW-Authenticate", `Basic realm="edgeway"`)
		http.Error(rw, "name and password needed", http.StatusUnauthorized)
	})
}

// guard checks passwords one at a time: bcrypt is slow on purpose, and guesses must not cost the host
// more than one CPU.
type guard struct {
	users map[string]string

	mu   sync.Mutex
	good map[string]string // user: the password that was right, so that a scraper is not slowed down
}

// unknown is compared with when there is no such user, so that the time does not tell.
const unknown = "$2a$10$vKLU8POrb328Euc83YIC2O3ONxWUPT8xIg4wuvJz7MtRXwcZPPjni"

func (g *guard) admits(user, password string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if known, ok := g.good[user]; ok && subtleEqual(known, password) {
		return true
	}
	hash, exists := g.users[user]
	if !exists {
		hash = unknown
	}
	if bcrypt.CompareHashAndPassword([]byte(hash), []byte(password)) != nil || !exists {
		return false
	}
	g.good[user] = password
	return true
}

func subtleEqual(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1
}
