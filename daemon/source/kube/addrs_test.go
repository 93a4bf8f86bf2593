package kube

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/pem"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/daemon/source"
)

// nameServer answers each question for an IPv4 address with all of these, and gives the resolver that asks it.
func nameServer(t *testing.T, addrs ...string) *net.Resolver {
	t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { socket.Close() })
	go func() {
		for query := make([]byte, 512); ; {
			n, from, err := socket.ReadFrom(query)
			if err != nil {
				return
			}
			// RFC 1035, section 4.1: a header of 12 bytes, the name, its type and class.
			end := 12 + bytes.IndexByte(query[12:n], 0) + 5
			reply := append(slices.Clone(query[:2]), 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0)
			reply = append(reply, query[12:end]...)
			if query[end-3] == 1 { // A
				reply[7] = byte(len(addrs))
				for _, a := range addrs {
					reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4)
					reply = append(reply, netip.MustParseAddr(a).AsSlice()...)
				}
			}
			_, _ = socket.WriteTo(reply, from)
		}
	}()
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "udp", socket.LocalAddr().String())
	}}
}

// apiServer gives the addresses that were handed over.
func (m *memory) apiServer(url string) []netip.Addr {
	m.mu.Lock()
	defer m.mu.Unlock()
	api, _ := m.objects[source.Key{Kind: source.KindAPIServer, Name: url}].(*source.APIServer)
	if api == nil {
		return nil
	}
	return api.Addrs
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// All addresses that the name stands for are the API server's, also those that no connection went to, and none
// that it had before is forgotten. They come before the source has synced.
func TestAPIServerByName(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	url := strings.Replace(api.URL, "127.0.0.1", "api.edgeway.test", 1)
	r := prepare(t, url, "", nil)
	r.client.dialer.Resolver = nameServer(t, "127.0.0.1", "198.51.100.7")
	if r.APIServer() != url {
		t.Errorf("server %q", r.APIServer())
	}
	r.run(t)
	r.waitSynced(t, 10*time.Second)
	if got, want := r.apiServer(url), addrs("127.0.0.1", "198.51.100.7"); !slices.Equal(got, want) {
		t.Errorf("addresses %v, want %v", got, want)
	}
}

// A name that comes to stand for another address is followed while the source runs.
func TestAPIServerMoves(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.Start()
	url := strings.Replace(api.URL, "127.0.0.1", "api.edgeway.test", 1)
	before, after := nameServer(t, "127.0.0.1"), nameServer(t, "127.0.0.1", "198.51.100.8")
	moved := make(chan struct{})
	r := prepare(t, url, "", nil)
	r.client.dialer.Resolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		select {
		case <-moved:
			return after.Dial(ctx, network, address)
		default:
			return before.Dial(ctx, network, address)
		}
	}}
	r.run(t)
	r.waitSynced(t, 10*time.Second)
	if got := r.apiServer(url); !slices.Equal(got, addrs("127.0.0.1")) {
		t.Errorf("addresses %v", got)
	}
	close(moved)
	api.CloseClientConnections()
	eventually(t, "the new address is known", 20*time.Second, func() bool {
		return slices.Equal(r.apiServer(url), addrs("127.0.0.1", "198.51.100.8"))
	})
}

// An address in the kubeconfig is known without any connection, and so is that of a server that never answers.
func TestAPIServerThatIsUnreachable(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{"https://[2001:db8::5]:6443": "2001:db8::5", "http://api.edgeway.test:1": "127.0.0.1"} {
		r := prepare(t, url, "", nil)
		r.client.dialer.Resolver = nameServer(t, "127.0.0.1")
		r.run(t)
		eventually(t, "the address of "+url+" is known", 5*time.Second, func() bool { return slices.Equal(r.apiServer(url), addrs(want)) })
	}
}

// noNames is a resolver that knows no name.
func noNames(t *testing.T) *net.Resolver { return nameServer(t) }

// While the name cannot be resolved the addresses from before are tried, the certificate being asked for the name all
// the same. They are all the API server's until the name can be resolved.
func TestAPIServerWhoseNameCannotBeResolved(t *testing.T) {
	t.Parallel()
	api := newFakeAPI(t)
	api.StartTLS()
	// The certificate of httptest is for example.com.
	url := strings.Replace(api.URL, "127.0.0.1", "example.com", 1)
	ca := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: api.Certificate().Raw}))
	for name, known := range map[string][]netip.Addr{"known": addrs("127.0.0.1", "127.1.2.3"), "unknown": nil} {
		r := prepare(t, url, ", certificate-authority-data: "+ca, func(o *Options) {
			o.KnownAddrs = func() []netip.Addr { return known }
		})
		r.client.dialer.Resolver = noNames(t)
		r.run(t)
		if known == nil {
			eventually(t, "the fault is told", 10*time.Second, func() bool { return strings.Contains(r.Status().Err, "no such host") })
			continue
		}
		r.waitSynced(t, 20*time.Second)
		if got := r.apiServer(url); !slices.Equal(got, known) {
			t.Errorf("%s: addresses %v, want %v", name, got, known)
		}
		if r.log.count("a previous address is used") == 0 {
			t.Error("the log does not say so")
		}
	}
}

// A proxy's addresses are guarded as the API server's own, whose name only the proxy may be able to resolve.
func TestAPIServerBehindAProxy(t *testing.T) {
	t.Parallel()
	r := prepare(t, "https://api.edgeway.test:6443", `, proxy-url: "http://proxy.edgeway.test:1"`, nil)
	r.client.dialer.Resolver = nameServer(t, "127.0.0.1", "198.51.100.9")
	r.run(t)
	eventually(t, "the addresses are known", 10*time.Second, func() bool {
		return slices.Equal(r.apiServer("https://api.edgeway.test:6443"), addrs("127.0.0.1", "198.51.100.9"))
	})
	if !strings.Contains(r.client.host(), "api.edgeway.test") {
		t.Errorf("server %q", r.client.host())
	}
}

// Each connection has the mark: by name, by address and to a known address.
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
	options := Options{
		Logger: slog.New(slog.DiscardHandler), Mark: mark,
		KnownAddrs: func() []netip.Addr { return addrs("127.0.0.1") },
	}
	for name, c := range map[string]struct {
		host     string
		resolver *net.Resolver
	}{
		"address":       {"127.0.0.1", nil},
		"name":          {"api.edgeway.test", nameServer(t, "127.0.0.1")},
		"known address": {"api.edgeway.test", noNames(t)},
	} {
		d := newDialer("https://"+net.JoinHostPort(c.host, port), options)
		d.Resolver = c.resolver
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

// Of a name that stands for other addresses each time the newest are remembered.
func TestAddressesAreBounded(t *testing.T) {
	d := newDialer("https://api.edgeway.test", Options{})
	first := netip.MustParseAddr("10.0.0.0")
	a := first
	for range maxAddrs + 1 {
		d.note(a)
		a = a.Next()
	}
	if got := d.seen(); len(got) != maxAddrs || slices.Contains(got, first) || !slices.Contains(got, a.Prev()) {
		t.Errorf("%d addresses, from %s to %s", len(got), got[0], got[len(got)-1])
	}
}
