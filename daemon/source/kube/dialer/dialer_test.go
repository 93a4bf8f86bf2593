package dialer

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"golang.org/x/sys/unix"

	"edgeway/daemon/source"
	"edgeway/test/nameserver"
)

const apiName = "api.edgeway.test"

// The dialer uses the response to the marked query if there is one, and otherwise the response to the unmarked query.
func TestMarkedQueryPrecedesUnmarked(t *testing.T) {
	t.Parallel()
	truth, marked := nameserver.Start(t, apiName, nameserver.Addrs("127.0.0.1")...)
	lie, unmarked := nameserver.Start(t, apiName, nameserver.Addrs("127.66.0.1")...)
	d := New(Options{})
	d.resolvers = []*net.Resolver{marked, unmarked}
	if found, err := d.lookup(t.Context(), apiName); err != nil || !slices.Equal(found, nameserver.Addrs("127.0.0.1")) {
		t.Errorf("found %v, error %v", found, err)
	}
	if truth.Queries.Load() == 0 || lie.Queries.Load() != 0 {
		t.Errorf("%d marked and %d unmarked questions", truth.Queries.Load(), lie.Queries.Load())
	}
	truth.Set(apiName)
	want := nameserver.Addrs("127.66.0.1")
	if found, err := d.lookup(t.Context(), apiName); err != nil || !slices.Equal(found, want) {
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

// All of the dialer's connections carry the mark, whether to a host name, a literal address or a known address.
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
	_, named := nameserver.Start(t, apiName, nameserver.Addrs("127.0.0.1")...)
	_, unnamed := nameserver.Start(t, apiName)
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
		d := New(options)
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
	controlErr := raw.Control(func(fd uintptr) {
		mark, err = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK)
	})
	if controlErr != nil || err != nil {
		t.Fatal(controlErr, err)
	}
	return mark
}

// If the addresses that the host name resolves to do not respond, a search dials each proven address only once.
func TestProvenAddressesAreDialledOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known []source.ServerAddr
		for i := range maxAddrs {
			known = append(known, source.ServerAddr{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})})
		}
		var dials atomic.Int32
		d := New(Options{
			Logger:     slog.New(slog.DiscardHandler),
			KnownAddrs: func() []source.ServerAddr { return known },
			Lookup: func(context.Context, string) ([]netip.Addr, error) {
				return nameserver.Addrs("192.0.2.1"), nil
			},
			Dial: func(ctx context.Context, _, address string) (net.Conn, error) {
				if strings.HasPrefix(address, "10.") {
					dials.Add(1)
					return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
				}
				<-ctx.Done()
				return nil, ctx.Err()
			},
		})
		_, err := d.DialContext(t.Context(), "tcp", "api.example:6443")
		if n := dials.Load(); err == nil || n != maxAddrs {
			t.Errorf("%d dials, error %v", n, err)
		}
	})
}
