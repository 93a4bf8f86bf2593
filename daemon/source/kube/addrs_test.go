package kube

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"edgeway/daemon/source"
	"edgeway/test/nameserver"
)

// apiName is a host name in httptest's certificate, which is also valid for 127.0.0.1.
const apiName = "example.com"

// startNameServer starts a name server that resolves apiName to the addresses.
func startNameServer(t *testing.T, addresses ...string) (*nameserver.Server, *net.Resolver) {
	t.Helper()
	return nameserver.Start(t, apiName, nameserver.Addrs(addresses...)...)
}

func withResolver(resolver *net.Resolver) func(*Options) {
	return func(o *Options) {
		o.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return resolver.LookupNetIP(ctx, "ip", name)
		}
	}
}

func wantAddrs(t *testing.T, what string, got []netip.Addr, want ...string) {
	t.Helper()
	if !slices.Equal(got, nameserver.Addrs(want...)) {
		t.Errorf("%s: addresses %v, want %v", what, got, want)
	}
}

// prepareByName prepares a source that connects to a fake API server by host name.
func prepareByName(t *testing.T, resolver *net.Resolver, change func(*Options)) (*fakeAPI, *runningSource, string) {
	t.Helper()
	api := newFakeAPI(t)
	api.EnableHTTP2 = true
	api.StartTLS()
	url := strings.Replace(api.URL, "127.0.0.1", apiName, 1)
	r := prepare(t, url, authorityOf(api), func(o *Options) {
		withResolver(resolver)(o)
		if change != nil {
			change(o)
		}
	})
	return api, r, url
}

func authorityOf(api *fakeAPI) string {
	return ", certificate-authority-data: " +
		base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{
			Type:  "CERTIFICATE",
			Bytes: api.Certificate().Raw,
		}))
}

// redial closes all connections, and fails the test unless a request over a new connection succeeds in time. The source
// must also regain contact within a minute, which allows for the feed's pace and the reflector's back-off.
func (r *runningSource) redial(t *testing.T, api *fakeAPI, within time.Duration) {
	t.Helper()
	api.CloseClientConnections()
	before := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	for {
		err := r.client.Load().core.Get().Resource("services").MaxRetries(0).Do(ctx).Error()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatalf("not within %s: an answer of the API server: %v", within, err)
		}
		time.Sleep(10 * time.Millisecond) // the request used a connection that was closing
	}
	api.put("services", "redial", clusterIP(9))
	api.remove("services", "redial")
	eventually(t, "the API server is heard again", time.Minute,
		func() bool { return r.Status().Fault.Message == "" && r.Status().LastContact.After(before) })
}

func (m *memory) apiServer(url string) []netip.Addr {
	if api := m.server(url); api != nil {
		return api.Addrs
	}
	return nil
}

func (m *memory) server(url string) *source.APIServer {
	m.mu.Lock()
	defer m.mu.Unlock()
	api, _ := m.objects[source.Key{Kind: source.KindAPIServer, Name: url}].(*source.APIServer)
	return api
}

// If name servers return several addresses, the source trusts only the address whose server presents the API server's
// certificate. The sink receives the trusted address before the source calls Synced.
func TestAPIServerByName(t *testing.T) {
	t.Parallel()
	lies := []string{"127.66.0.1", "127.0.0.1", "10.96.0.10"}
	for i := range 253 {
		lies = append(lies, fmt.Sprintf("127.66.1.%d", i))
	}
	for _, list := range [][]string{{"127.0.0.1"}, lies[:3], lies} {
		_, resolver := startNameServer(t, list...)
		_, r, url := prepareByName(t, resolver, nil)
		r.run(t)
		r.waitSynced(t, 20*time.Second)
		wantAddrs(t, fmt.Sprintf("%d records", len(list)), r.apiServer(url), "127.0.0.1")
	}
}

// If the host name resolves to a new address, a running source connects to the new address. The source then trusts both
// the old and the new address.
func TestAPIServerMoves(t *testing.T) {
	t.Parallel()
	names, resolver := startNameServer(t, "127.0.0.1")
	api, r, url := prepareByName(t, resolver, nil)
	r.run(t)
	r.waitSynced(t, 10*time.Second)
	target := api.Listener.Addr().String()
	startFalseServer(t, "127.0.0.8", api.URL, func(near net.Conn) {
		far, err := net.Dial("tcp", target)
		if err != nil {
			near.Close()
			return
		}
		go func() { _, _ = io.Copy(far, near); far.Close() }()
		_, _ = io.Copy(near, far)
		near.Close()
	})
	names.Set(apiName, nameserver.Addrs("127.0.0.8")...)
	r.redial(t, api, 10*time.Second)
	r.redial(t, api, 10*time.Second) // the first connection may come from a dial that began before the change
	eventually(t, "the new address is known", 5*time.Second, func() bool {
		return slices.Equal(r.apiServer(url), nameserver.Addrs("127.0.0.1", "127.0.0.8"))
	})
	if r.log.count("using a previous address") != 0 {
		t.Errorf("the previous address is used:\n%s", r.log)
	}
}

// A literal address in the kubeconfig counts as an address of the API server even without a connection. An address that
// a host name resolves to counts as an API server address only if a connection succeeds and the source verifies the
// server's certificate.
func TestUnprovenAPIServerAddresses(t *testing.T) {
	t.Parallel()
	_, resolver := startNameServer(t, "127.0.0.1")
	api := newFakeAPI(t)
	api.StartTLS()
	plain := newFakeAPI(t)
	plain.Start()
	for _, c := range []struct{ url, cluster, want string }{
		{"https://[2001:db8::5]:6443", "", "2001:db8::5"},
		{"https://" + apiName + ":1", "", ""},
		{strings.Replace(api.URL, "127.0.0.1", apiName, 1), ", insecure-skip-tls-verify: true", ""},
		{strings.Replace(plain.URL, "127.0.0.1", apiName, 1), "", ""},
	} {
		r := prepare(t, c.url, c.cluster, withResolver(resolver))
		r.run(t)
		eventually(t, "the server is asked: "+c.url, 10*time.Second, func() bool {
			return c.want != "" || r.Status().Fault.Message != "" || r.Status().Synced
		})
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		eventually(t, "the address of "+c.url, 5*time.Second, func() bool {
			return slices.Equal(r.apiServer(c.url), nameserver.Addrs(want...))
		})
	}
}

// A TLS handshake with the API server through a proxy confirms the proxy's address. The source does not resolve the API
// server's host name, because only the proxy may be able to resolve it.
func TestAPIServerBehindProxy(t *testing.T) {
	t.Parallel()
	const proxyName = "proxy.edgeway.test"
	names, resolver := startNameServer(t, "198.51.100.9")
	names.Set(proxyName, nameserver.Addrs("127.0.0.1")...)
	api := newFakeAPI(t)
	api.StartTLS()
	url := strings.Replace(api.URL, "127.0.0.1", apiName, 1)
	proxy, port := startProxy(t, api.Listener.Addr().String())
	cluster := authorityOf(api) + fmt.Sprintf(`, proxy-url: "http://%s:%s"`, proxyName, port)
	r := prepare(t, url, cluster, withResolver(resolver))
	r.run(t)
	r.waitSynced(t, 10*time.Second)
	wantAddrs(t, "by a proxy", r.apiServer(url), "127.0.0.1")

	names.Set(proxyName, nameserver.Addrs("127.66.0.1")...)
	// The server at 127.66.0.1 accepts connections but sends nothing.
	startFalseServer(t, "127.66.0.1", "http://127.0.0.1:"+port, func(net.Conn) {})
	proxy.CloseClientConnections()
	r.redial(t, api, 10*time.Second)
	wantAddrs(t, "by a proxy whose name is a lie", r.apiServer(url), "127.0.0.1")
}

func startProxy(t *testing.T, target string) (server *httptest.Server, port string) {
	t.Helper()
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		far, err := net.Dial("tcp", target)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		near, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprint(near, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(far, near); far.Close() }()
		_, _ = io.Copy(near, far)
		near.Close()
	}))
	t.Cleanup(server.Close)
	_, port, _ = net.SplitHostPort(server.Listener.Addr().String())
	return server, port
}
