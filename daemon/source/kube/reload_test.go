package kube

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"edgeway/proxiers/fault"
)

// gate rejects requests that carry none of its tokens.
type gate struct {
	next   http.Handler
	tokens atomic.Value // holds a []string
	latest atomic.Value // holds a string
}

func newGate(api *fakeAPI, tokens ...string) *gate {
	g := &gate{next: api.Config.Handler}
	g.tokens.Store(tokens)
	g.latest.Store("")
	api.Config.Handler = g
	return g
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	token := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !slices.Contains(g.tokens.Load().([]string), token) {
		status(w, http.StatusUnauthorized, "Unauthorized", "Unauthorized")
		return
	}
	g.latest.Store(token)
	g.next.ServeHTTP(w, r)
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func mustRename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

func mustLink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

// withUser returns a kubeconfig whose user has the fields in the user parameter. The URL must use https, because
// client-go sends credentials only over TLS.
func withUser(url, user string) string {
	return fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: %q, insecure-skip-tls-verify: true}}],
users: [{name: u, user: {%s}}]}`, url, user)
}

// If the API server no longer accepts a token and the operator replaces the token, the source uses the new token. The
// cases cover the usual ways to replace a kubeconfig or token file.
func TestReplacedTokenIsPickedUp(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]struct {
		prepare, replace func(t *testing.T, dir, url string)
	}{
		"rewritten": {
			func(t *testing.T, dir, url string) { mustWrite(t, dir+"/kubeconfig", withUser(url, "token: one")) },
			func(t *testing.T, dir, url string) { mustWrite(t, dir+"/kubeconfig", withUser(url, "token: two")) },
		},
		"renamed": {
			func(t *testing.T, dir, url string) { mustWrite(t, dir+"/kubeconfig", withUser(url, "token: one")) },
			func(t *testing.T, dir, url string) {
				mustWrite(t, dir+"/new", withUser(url, "token: two"))
				mustRename(t, dir+"/new", dir+"/kubeconfig")
			},
		},
		"volume": {
			func(t *testing.T, dir, url string) {
				if err := os.Mkdir(dir+"/..1", 0o700); err != nil {
					t.Fatal(err)
				}
				mustWrite(t, dir+"/..1/kubeconfig", withUser(url, "token: one"))
				mustLink(t, "..1", dir+"/..data")
				mustLink(t, "..data/kubeconfig", dir+"/kubeconfig")
			},
			func(t *testing.T, dir, url string) {
				if err := os.Mkdir(dir+"/..2", 0o700); err != nil {
					t.Fatal(err)
				}
				mustWrite(t, dir+"/..2/kubeconfig", withUser(url, "token: two"))
				mustLink(t, "..2", dir+"/..data_tmp")
				mustRename(t, dir+"/..data_tmp", dir+"/..data")
			},
		},
		"token file": {
			func(t *testing.T, dir, url string) {
				mustWrite(t, dir+"/token", "one\n")
				mustWrite(t, dir+"/kubeconfig", withUser(url, "tokenFile: token"))
			},
			func(t *testing.T, dir, _ string) { mustWrite(t, dir+"/token", "two\n") },
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := newFakeAPI(t)
			g := newGate(api, "one")
			api.StartTLS()
			api.put("services", "a", clusterIP(1))
			dir := t.TempDir()
			way.prepare(t, dir, api.URL)
			r := start(t, api.URL, "", func(o *Options) { o.Kubeconfig = filepath.Join(dir, "kubeconfig") })
			r.waitSynced(t, 10*time.Second)
			g.tokens.Store([]string{"two"})
			api.CloseClientConnections()
			eventually(t, "the old token is refused", 20*time.Second,
				func() bool { return strings.Contains(r.Status().Fault.Message, "401") })
			api.put("services", "b", clusterIP(2))
			way.replace(t, dir, api.URL)
			// client-go (v0.37.2) reads a token file once a minute.
			eventually(t, "the new token is used", 2*time.Minute,
				func() bool { return r.names() == "a b" && r.Status().Fault.Message == "" })
		})
	}
}

// After the credentials change, the source sends one list request for the Services, reports no fault and misses no
// change.
func TestNewCredentialsKeepState(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	g := newGate(api, "one", "two")
	api.StartTLS()
	api.put("services", "a", clusterIP(1))
	api.put("services", "gone", clusterIP(3))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	mustWrite(t, path, withUser(api.URL, "token: one"))
	r := start(t, api.URL, "", func(o *Options) { o.Kubeconfig = path })
	r.waitSynced(t, 10*time.Second)
	mustWrite(t, path, withUser(api.URL, "token: two"))
	api.remove("services", "gone")
	eventually(t, "the new token is used", 20*time.Second, func() bool { return g.latest.Load() == "two" })
	api.put("services", "b", clusterIP(2))
	eventually(t, "b arrives", 20*time.Second, func() bool { return r.names() == "a b" })
	if n := api.count("services", "list", "stream"); n != 2 {
		t.Errorf("%d lists, want 2", n)
	}
	if n := r.log.count("new credentials in force"); n != 1 {
		t.Errorf("%d messages about new credentials, want 1", n)
	}
}

// client-go reads a token file itself, so the watches continue after a token rotation.
func TestTokenRotationNeedsNoList(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	g := newGate(api, "one", "two")
	api.StartTLS()
	api.put("services", "a", clusterIP(1))
	dir := t.TempDir()
	mustWrite(t, dir+"/token", "one")
	mustWrite(t, dir+"/kubeconfig", withUser(api.URL, "tokenFile: token"))
	r := start(t, api.URL, "", func(o *Options) { o.Kubeconfig = dir + "/kubeconfig" })
	r.waitSynced(t, 10*time.Second)
	time.Sleep(1200 * time.Millisecond) // a watch that ends sooner counts as failed
	mustWrite(t, dir+"/token", "two")
	eventually(t, "the new token is used", 2*time.Minute, func() bool {
		time.Sleep(3 * time.Second)
		api.CloseClientConnections() // make each watch send a request over a new connection
		return g.latest.Load() == "two"
	})
	api.put("services", "b", clusterIP(2))
	eventually(t, "b arrives", 20*time.Second,
		func() bool { return r.names() == "a b" && r.Status().Fault.Message == "" })
	if n := api.count("services", "list", "stream"); n != 1 {
		t.Errorf("%d lists, want 1", n)
	}
	if n := r.log.count("new credentials in force"); n != 0 {
		t.Errorf("%d messages about new credentials", n)
	}
}

func (r *runningSource) faultOf(id string) (fault.Fault, bool) {
	for _, f := range r.Faults() {
		if f.ID == id {
			return f, true
		}
	}
	return fault.Fault{}, false
}

func TestUnusableKubeconfigKeepsPrevious(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	path := filepath.Join(t.TempDir(), "kubeconfig")
	mustWrite(t, path, withUser(api.URL, "token: one"))
	r := start(t, api.URL, "", func(o *Options) { o.Kubeconfig = path })
	r.waitSynced(t, 10*time.Second)
	mustWrite(t, path, withUser(api.URL, "tokenFile: nothing"))
	eventually(t, "the fault is told", 20*time.Second, func() bool {
		c, ok := r.faultOf(refusedID)
		return ok && strings.Contains(c.Message, "users[u].user.tokenFile: open ") && !c.Since.IsZero()
	})
	api.put("services", "a", clusterIP(1))
	eventually(t, "Services still arrive", 10*time.Second, func() bool { return r.names() == "a" })
	mustWrite(t, filepath.Join(filepath.Dir(path), "nothing"), "two")
	eventually(t, "the file that was missing mends it", 20*time.Second, func() bool {
		_, faulty := r.faultOf(refusedID)
		return !faulty && r.log.count("new credentials in force") == 1
	})
}

// The new server may belong to another cluster, so its objects replace all objects from the previous server, regardless
// of resource versions.
func TestAnotherServerReplacesObjects(t *testing.T) {
	t.Parallel()
	before, after := newFakeAPI(t), newFakeAPI(t)
	after.rv = 7
	before.Start()
	after.Start()
	before.put("services", "a", clusterIP(1))
	after.put("services", "b", clusterIP(2))
	path := filepath.Join(t.TempDir(), "kubeconfig")
	mustWrite(t, path, withUser(before.URL, "token: one"))
	r := start(t, before.URL, "", func(o *Options) { o.Kubeconfig = path })
	r.waitSynced(t, 10*time.Second)
	const silent = "http://127.0.0.1:1"
	mustWrite(t, path, withUser(silent, "token: one"))
	eventually(t, "the new kubeconfig is in force", 45*time.Second, func() bool { return r.APIServer() == silent })
	if server, _ := r.Cluster(); server != before.URL {
		t.Errorf("the objects are from %s, not %s", server, before.URL)
	}
	mustWrite(t, path, withUser(after.URL, "token: one"))
	eventually(t, "the objects are the new server's", 45*time.Second, func() bool { return r.names() == "b" })
	eventually(t, "the new server's cluster", 10*time.Second,
		func() bool { server, _ := r.Cluster(); return server == after.URL })
	if r.APIServer() != after.URL || r.apiServer(after.URL) == nil || r.apiServer(before.URL) != nil {
		t.Errorf("server %s; addresses %v, before %v", r.APIServer(), r.apiServer(after.URL), r.apiServer(before.URL))
	}
	for _, req := range after.seen() {
		if rv := req.get("resourceVersion"); len(rv) > 2 {
			t.Errorf("the new server is asked for version %s of the previous one", rv)
		}
	}
}

// authority signs certificates for 127.0.0.1.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func (a *authority) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}))
}

func (a *authority) issue(t *testing.T, name string) (cert, key string) {
	t.Helper()
	template := x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	own, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, own.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalECPrivateKey(own)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: raw}))
}

func TestReplacedCertificatesArePickedUp(t *testing.T) {
	t.Parallel()
	first, second := newAuthority(t), newAuthority(t)
	var now atomic.Pointer[tls.Config]
	use := func(a *authority) {
		cert, key := a.issue(t, "server")
		pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
		if err != nil {
			t.Fatal(err)
		}
		clients := x509.NewCertPool()
		clients.AddCert(a.cert)
		now.Store(&tls.Config{
			Certificates: []tls.Certificate{pair}, ClientCAs: clients,
			ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2"},
		})
	}
	dir := t.TempDir()
	files := func(a *authority) {
		cert, key := a.issue(t, "edgeway")
		mustWrite(t, dir+"/ca.crt", a.pem())
		mustWrite(t, dir+"/client.crt", cert)
		mustWrite(t, dir+"/client.key", key)
	}
	use(first)
	files(first)
	api := newFakeAPI(t)
	api.EnableHTTP2 = true
	api.TLS = &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return now.Load(),
			nil
	}}
	api.StartTLS()
	api.put("services", "a", clusterIP(1))
	text := strings.NewReplacer("SERVER", api.URL).Replace(`{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: SERVER, certificate-authority: ca.crt}}],
users: [{name: u, user: {client-certificate: client.crt, client-key: client.key}}]}`)
	mustWrite(t, dir+"/kubeconfig", text)
	r := start(t, api.URL, "", func(o *Options) { o.Kubeconfig = dir + "/kubeconfig" })
	r.waitSynced(t, 10*time.Second)
	use(second)
	api.CloseClientConnections()
	eventually(t, "the new server is refused", 20*time.Second, func() bool { return r.Status().Fault.Message != "" })
	files(second)
	api.put("services", "b", clusterIP(2))
	eventually(t, "the new certificates are used", 45*time.Second,
		func() bool { return r.names() == "a b" && r.Status().Fault.Message == "" })
	if got := r.Expiries(); len(got) != 2 || got["ca"].Until != second.cert.NotAfter ||
		got["client-certificate"].Until.IsZero() {
		t.Errorf("expiries %v", got)
	}
}
