package kube

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/daemon/source"
	"edgeway/test/nameserver"
)

// startNameServer starts a name server that returns the addresses for apiName. The second result is a resolver that
// queries the server.
func startNameServer(t *testing.T, addresses ...string) (*nameserver.Server, *net.Resolver) {
	t.Helper()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { udp.Close(); tcp.Close() })
	server := new(nameserver.Server)
	server.Set(apiName, addrs(addresses...)...)
	go server.Serve(udp, tcp)
	return server, &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, tcp.Addr().String())
	}}
}

// apiName is a host name in httptest's certificate, which is also valid for 127.0.0.1.
const apiName = "example.com"

// prepareByName prepares a source that connects to a fake API server by host name.
func prepareByName(t *testing.T, resolver *net.Resolver, change func(*Options)) (*fakeAPI, *runningSource, string) {
	t.Helper()
	api := newFakeAPI(t)
	api.EnableHTTP2 = true
	api.StartTLS()
	url := strings.Replace(api.URL, "127.0.0.1", apiName, 1)
	r := prepare(t, url, authorityOf(api), change)
	r.dialer.resolvers = []*net.Resolver{resolver}
	return api, r, url
}

func authorityOf(api *fakeAPI) string {
	return ", certificate-authority-data: " + base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}))
}

// redial closes all connections. The test fails unless a request over a new connection succeeds in time. The source
// must also regain contact. The feed's pace and the reflector's back-off may delay this contact.
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
	eventually(t, "the API server is heard again", time.Minute, func() bool { return r.Status().Fault.Message == "" && r.Status().LastContact.After(before) })
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

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
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

// The source uses the response to the marked query if there is one, and otherwise the response to the unmarked query.
func TestMarkedQueryPrecedesUnmarked(t *testing.T) {
	t.Parallel()
	truth, marked := startNameServer(t, "127.0.0.1")
	lie, unmarked := startNameServer(t, "127.66.0.1")
	d := newDialer(Options{})
	d.resolvers = []*net.Resolver{marked, unmarked}
	if found, err := d.lookup(t.Context(), apiName); err != nil || !slices.Equal(found, addrs("127.0.0.1")) {
		t.Errorf("found %v, error %v", found, err)
	}
	if truth.Queries.Load() == 0 || lie.Queries.Load() != 0 {
		t.Errorf("%d marked and %d unmarked questions", truth.Queries.Load(), lie.Queries.Load())
	}
	truth.Set(apiName)
	if found, err := d.lookup(t.Context(), apiName); err != nil || !slices.Equal(found, addrs("127.66.0.1")) {
		t.Errorf("without a marked answer: found %v, error %v", found, err)
	}
}

func TestQueriesAreMarked(t *testing.T) {
	t.Parallel()
	const mark = 0x1000
	resolvers := newResolvers(mark)
	conn, err := resolvers[0].Dial(t.Context(), "tcp", listener(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if got := markOf(t, conn); got != mark || !resolvers[0].PreferGo || len(resolvers) != 2 {
		t.Errorf("mark %#x of the first of %d resolvers", got, len(resolvers))
	}
}

func listener(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
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
	names.Set(apiName, addrs("127.0.0.8")...)
	r.redial(t, api, 10*time.Second)
	r.redial(t, api, 10*time.Second) // the first connection may come from a dial that began before the change
	eventually(t, "the new address is known", 5*time.Second, func() bool {
		return slices.Equal(r.apiServer(url), addrs("127.0.0.1", "127.0.0.8"))
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
		r := prepare(t, c.url, c.cluster, nil)
		r.dialer.resolvers = []*net.Resolver{resolver}
		r.run(t)
		eventually(t, "the server is asked: "+c.url, 10*time.Second, func() bool {
			return c.want != "" || r.Status().Fault.Message != "" || r.Status().Synced
		})
		var want []string
		if c.want != "" {
			want = []string{c.want}
		}
		eventually(t, "the address of "+c.url, 5*time.Second, func() bool { return slices.Equal(r.apiServer(c.url), addrs(want...)) })
	}
}

// A TLS handshake with the API server through a proxy confirms the proxy's address. The source does not resolve the API
// server's host name, because only the proxy may be able to resolve it.
func TestAPIServerBehindProxy(t *testing.T) {
	t.Parallel()
	const proxyName = "proxy.edgeway.test"
	names, resolver := startNameServer(t, "198.51.100.9")
	names.Set(proxyName, addrs("127.0.0.1")...)
	api := newFakeAPI(t)
	api.StartTLS()
	url := strings.Replace(api.URL, "127.0.0.1", apiName, 1)
	proxy, port := startProxy(t, api.Listener.Addr().String())
	r := prepare(t, url, authorityOf(api)+fmt.Sprintf(`, proxy-url: "http://%s:%s"`, proxyName, port), nil)
	r.dialer.resolvers = []*net.Resolver{resolver}
	r.run(t)
	r.waitSynced(t, 10*time.Second)
	wantAddrs(t, "by a proxy", r.apiServer(url), "127.0.0.1")

	names.Set(proxyName, addrs("127.66.0.1")...)
	// The server accepts but sends nothing.
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

// Connections carry the mark whether the source connects by host name, by address or to a known address.
func TestConnectionsAreMarked(t *testing.T) {
	t.Parallel()
	const mark = 0x1000
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	_, named := startNameServer(t, "127.0.0.1")
	_, unnamed := startNameServer(t)
	options := Options{
		Logger: slog.New(slog.DiscardHandler), Mark: mark,
		KnownAddrs: func() []source.ServerAddr { return []source.ServerAddr{{Addr: netip.MustParseAddr("127.0.0.1")}} },
	}
	for name, c := range map[string]struct {
		host     string
		resolver *net.Resolver
	}{
		"address":       {"127.0.0.1", nil},
		"name":          {apiName, named},
		"known address": {apiName, unnamed},
	} {
		d := newDialer(options)
		d.resolvers = []*net.Resolver{c.resolver}
		conn, err := d.DialContext(t.Context(), "tcp", net.JoinHostPort(c.host, port))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := markOf(t, conn); got != mark {
			t.Errorf("%s: mark %#x, want %#x", name, got, mark)
		}
		conn.Close()
	}
}

func markOf(t *testing.T, conn net.Conn) (mark int) {
	t.Helper()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if controlErr := raw.Control(func(fd uintptr) { mark, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK) }); controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	return mark
}
