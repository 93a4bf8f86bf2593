package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"time"
)

// credentials holds the certificate authority, and the paths to the API server's key and certificate files. CA is the
// authority's certificate in PEM format.
type credentials struct {
	CA                    []byte
	caFile                string
	certFile, keyFile     string
	serviceAccountKeyFile string
	authority             *x509.Certificate
	authorityKey          *ecdsa.PrivateKey
}

// newCredentials creates a certificate authority, a serving certificate for addrs and a service account key, and writes
// these credentials to dir. The certificates are valid for one day.
func newCredentials(dir string, addrs []netip.Addr) (*credentials, error) {
	ca := template("edgeway-test-ca")
	ca.IsCA, ca.BasicConstraintsValid = true, true
	ca.KeyUsage = x509.KeyUsageCertSign
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("certificate authority key: %w", err)
	}
	serving := template("kube-apiserver")
	serving.KeyUsage = x509.KeyUsageDigitalSignature
	serving.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	for _, a := range addrs {
		serving.IPAddresses = append(serving.IPAddresses, net.IP(a.AsSlice()))
	}
	servingKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("API server key: %w", err)
	}
	c := &credentials{
		caFile:                filepath.Join(dir, "ca.crt"),
		certFile:              filepath.Join(dir, "apiserver.crt"),
		keyFile:               filepath.Join(dir, "apiserver.key"),
		serviceAccountKeyFile: filepath.Join(dir, "service-account.key"),
		authority:             ca,
		authorityKey:          caKey,
	}
	if c.CA, err = writeCertificate(c.caFile, ca, ca, caKey, caKey); err != nil {
		return nil, err
	}
	if _, err = writeCertificate(c.certFile, serving, ca, servingKey, caKey); err != nil {
		return nil, err
	}
	if err := writeKey(c.keyFile, servingKey); err != nil {
		return nil, err
	}
	return c, writeKey(c.serviceAccountKeyFile, caKey)
}

// Certificate returns a user's client certificate and private key, both in PEM format.
func (c *Cluster) Certificate(user string) (cert, key []byte, err error) {
	t := template(user)
	t.KeyUsage, t.ExtKeyUsage = x509.KeyUsageDigitalSignature, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("key of %s: %w", user, err)
	}
	path := filepath.Join(c.dir, user+".client")
	if cert, err = writeCertificate(path+".crt", t, c.creds.authority, own, c.creds.authorityKey); err != nil {
		return nil, nil, err
	}
	if err := writeKey(path+".key", own); err != nil {
		return nil, nil, err
	}
	key, err = os.ReadFile(path + ".key")
	return cert, key, err
}

func template(name string) *x509.Certificate {
	now := time.Now()
	return &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    now.Add(-time.Hour),
		NotAfter:     now.Add(24 * time.Hour),
	}
}

func writeCertificate(path string, cert, parent *x509.Certificate, key, parentKey *ecdsa.PrivateKey) ([]byte, error) {
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, key.Public(), parentKey)
	if err != nil {
		return nil, fmt.Errorf("certificate %s: %w", cert.Subject.CommonName, err)
	}
	raw := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return raw, os.WriteFile(path, raw, 0o600)
}

func writeKey(path string, key *ecdsa.PrivateKey) error {
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding of a key: %w", err)
	}
	return os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), 0o600)
}
