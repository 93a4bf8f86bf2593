package webconfig

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"edgeway/daemon/regular"
)

// tlsSettings are the key tls_server_config. A certificate, key or CA is named by a file, or is there itself.
type tlsSettings struct {
	Cert         string   `json:"cert"`
	CertFile     string   `json:"cert_file"`
	Key          string   `json:"key"`
	KeyFile      string   `json:"key_file"`
	ClientCA     string   `json:"client_ca"`
	ClientCAFile string   `json:"client_ca_file"`
	ClientAuth   string   `json:"client_auth_type"`
	AllowedSANs  []string `json:"client_allowed_sans"`
	MinVersion   string   `json:"min_version"`
	MaxVersion   string   `json:"max_version"`
	Ciphers      []string `json:"cipher_suites"`
	Curves       []string `json:"curve_preferences"`
	ServerOrder  bool     `json:"prefer_server_cipher_suites"` // without effect since Go 1.17

	folder string // of the file: what its relative paths are relative to
}

// config reads what the settings name.
func (s *tlsSettings) config() (*tls.Config, error) {
	cert, err := s.content("cert", s.Cert, s.CertFile)
	if err != nil {
		return nil, err
	}
	key, err := s.content("key", s.Key, s.KeyFile)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, fmt.Errorf("tls_server_config: certificate: %w", err)
	}
	c := &tls.Config{Certificates: []tls.Certificate{pair}} //nolint:gosec // G402: MinVersion is set below
	for _, set := range []func(*tls.Config) error{s.versions, s.algorithms, s.clients} {
		if err := set(c); err != nil {
			return nil, fmt.Errorf("tls_server_config: %w", err)
		}
	}
	return c, nil
}

func (s *tlsSettings) content(name, inline, file string) ([]byte, error) {
	switch {
	case file == "" && inline == "":
		return nil, fmt.Errorf("tls_server_config: %s_file is missing", name)
	case file == "":
		return []byte(inline), nil
	case !filepath.IsAbs(file):
		file = filepath.Join(s.folder, file)
	}
	raw, err := regular.Read(file, regular.Small)
	if err != nil {
		return nil, fmt.Errorf("tls_server_config: %s_file: %w", name, err)
	}
	return raw, nil
}

func (s *tlsSettings) versions(c *tls.Config) error {
	known := map[string]uint16{"TLS10": tls.VersionTLS10, "TLS11": tls.VersionTLS11, "TLS12": tls.VersionTLS12, "TLS13": tls.VersionTLS13}
	var low, high bool
	c.MinVersion, low = known[cmp.Or(s.MinVersion, "TLS12")]
	c.MaxVersion, high = known[cmp.Or(s.MaxVersion, "TLS13")]
	if !low || !high {
		return errors.New("min_version and max_version must be TLS10, TLS11, TLS12 or TLS13")
	}
	return nil
}

func (s *tlsSettings) algorithms(c *tls.Config) error {
	for _, name := range s.Ciphers {
		i := slices.IndexFunc(tls.CipherSuites(), func(suite *tls.CipherSuite) bool { return suite.Name == name })
		if i < 0 {
			return fmt.Errorf("cipher_suites: unknown cipher %q", name)
		}
		c.CipherSuites = append(c.CipherSuites, tls.CipherSuites()[i].ID)
	}
	known := map[string]tls.CurveID{"CurveP256": tls.CurveP256, "CurveP384": tls.CurveP384, "CurveP521": tls.CurveP521, "X25519": tls.X25519}
	for _, name := range s.Curves {
		curve, ok := known[name]
		if !ok {
			return fmt.Errorf("curve_preferences: unknown curve %q", name)
		}
		c.CurvePreferences = append(c.CurvePreferences, curve)
	}
	return nil
}

// clients says which certificates the clients need.
func (s *tlsSettings) clients(c *tls.Config) error {
	var ok bool
	c.ClientAuth, ok = map[string]tls.ClientAuthType{
		"": tls.NoClientCert, "NoClientCert": tls.NoClientCert, "RequestClientCert": tls.RequestClientCert,
		"RequireAnyClientCert": tls.RequireAnyClientCert, "RequireClientCert": tls.RequireAnyClientCert,
		"VerifyClientCertIfGiven": tls.VerifyClientCertIfGiven, "RequireAndVerifyClientCert": tls.RequireAndVerifyClientCert,
	}[s.ClientAuth]
	if !ok {
		return fmt.Errorf("client_auth_type: unknown type %q", s.ClientAuth)
	}
	if s.AllowedSANs != nil {
		c.VerifyConnection = s.checkSAN
	}
	if s.ClientCA == "" && s.ClientCAFile == "" {
		return nil
	}
	if c.ClientAuth == tls.NoClientCert {
		return errors.New("client_ca_file has no effect without client_auth_type")
	}
	pem, err := s.content("client_ca", s.ClientCA, s.ClientCAFile)
	if err != nil {
		return err
	}
	c.ClientCAs = x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return errors.New("client_ca_file has no certificate")
	}
	return nil
}

// checkSAN wants one of the allowed names in the client's certificate, if it has one: client_auth_type says whether it must.
func (s *tlsSettings) checkSAN(state tls.ConnectionState) error {
	if len(state.PeerCertificates) == 0 {
		return nil
	}
	cert := state.PeerCertificates[0]
	names := slices.Concat(cert.DNSNames, cert.EmailAddresses)
	for _, ip := range cert.IPAddresses {
		names = append(names, ip.String())
	}
	for _, uri := range cert.URIs {
		names = append(names, uri.String())
	}
	if slices.ContainsFunc(names, func(name string) bool { return slices.Contains(s.AllowedSANs, name) }) {
		return nil
	}
	return errors.New("the client's certificate has none of client_allowed_sans")
}
