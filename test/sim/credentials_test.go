package sim

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
)

type ctx = context.Context

type credentials struct {
	ca                  []byte // in PEM format
	server, foreignCert tls.Certificate
}

// newCredentials creates certificates that are valid in a synctest bubble, where the clock starts in 2000.
func newCredentials(t *testing.T) *credentials {
	t.Helper()
	issue := func() (ca []byte, leaf tls.Certificate) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		must(err)
		cert := &x509.Certificate{
			SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "api"}, DNSNames: []string{"api.test"},
			NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC),
			IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
			IPAddresses: []net.IP{net.IPv4(192, 0, 2, 10), net.IPv4(192, 0, 2, 11), net.IPv4(192, 0, 2, 12)},
		}
		der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
		must(err)
		return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	c := &credentials{}
	c.ca, c.server = issue()
	_, c.foreignCert = issue()
	return c
}

func (s *simulation) url() string {
	if s.named {
		return serverName + ":6443"
	}
	return s.addr
}

// writeKubeconfig writes a kubeconfig with the API server's address and token, or a truncated file if broken is true.
func (s *simulation) writeKubeconfig(broken bool) {
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: k, user: u}}]
clusters: [{name: k, cluster: {server: "https://%s", certificate-authority-data: %s}}]
users: [{name: u, user: {token: %s}}]
`, s.url(), base64.StdEncoding.EncodeToString(s.creds.ca), s.token)
	if broken {
		text = text[:len(text)/2]
	}
	path := s.config.Source.Kube.Kubeconfig
	must(os.WriteFile(path+".new", []byte(text), 0o600))
	must(os.Rename(path+".new", path))
	s.host.notifyWatchers(path, fsnotify.Create)
}
