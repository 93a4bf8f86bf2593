package kube

import (
	"bytes"
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

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
