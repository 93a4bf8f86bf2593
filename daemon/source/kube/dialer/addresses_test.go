package dialer

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/source"
	"edgeway/test/nameserver"
)

func (a *addresses) all() []netip.Addr { return a.server("").Addrs }

func wantAddrs(t *testing.T, what string, got []netip.Addr, want ...string) {
	t.Helper()
	if !slices.Equal(got, nameserver.Addrs(want...)) {
		t.Errorf("%s: addresses %v, want %v", what, got, want)
	}
}

// The source forgets an address that the host name no longer resolves to, unless TLS handshakes at the address still
// succeed. The source always keeps the address of the latest handshake.
func TestProvenAddressesExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAddresses()
		old, in, next := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2"),
			netip.MustParseAddr("192.0.2.3")
		for _, addr := range []netip.Addr{old, in} {
			a.noteResolved(nameserver.Addrs("192.0.2.1", "192.0.2.2"))
			a.prove(addr)
		}
		for range 60 { // the host name resolves to both addresses, but the source uses only one of the addresses
			time.Sleep(24 * time.Hour)
			a.noteResolved(nameserver.Addrs("192.0.2.1", "192.0.2.2"))
			a.prove(in)
		}
		wantAddrs(t, "after two months", a.all(), "192.0.2.1", "192.0.2.2")

		for range 60 { // two months of false DNS responses without a successful handshake
			time.Sleep(24 * time.Hour)
			a.noteResolved(nameserver.Addrs("203.0.113.66"))
		}
		wantAddrs(t, "after two months of lies", a.all(), "192.0.2.1", "192.0.2.2")
		if got := a.others(nil); !slices.Equal(got, []netip.Addr{in, old}) {
			t.Errorf("order of trial %v", got)
		}

		a.noteResolved(nameserver.Addrs("192.0.2.1", "192.0.2.2"))
		time.Sleep(time.Hour)
		a.noteResolved(nameserver.Addrs("192.0.2.3")) // the server moves to another address
		a.prove(next)
		wantAddrs(t, "after the move", a.all(), "192.0.2.1", "192.0.2.2", "192.0.2.3")
		for range 7 {
			time.Sleep(24 * time.Hour)
			a.noteResolved(nameserver.Addrs("192.0.2.3"))
			a.prove(in) // the address is still in use, although the host name no longer resolves to it
			a.prove(next)
		}
		wantAddrs(t, "a week later", a.all(), "192.0.2.1", "192.0.2.2", "192.0.2.3")
		time.Sleep(time.Hour)
		a.prove(next)
		wantAddrs(t, "more than a week later", a.all(), "192.0.2.2", "192.0.2.3")
		time.Sleep(8 * 24 * time.Hour)
		a.prove(next)
		wantAddrs(t, "at the end", a.all(), "192.0.2.3")
	})
}

// Edgeway keeps only the maxAddrs addresses with the latest handshakes.
func TestProvenAddressesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAddresses()
		var last netip.Addr
		for i := range 256 {
			last = netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", i))
			a.prove(last)
		}
		first := last
		for range maxAddrs - 1 {
			first = first.Prev()
		}
		if got := a.all(); len(got) != maxAddrs || got[0] != first || got[len(got)-1] != last {
			t.Errorf("%d addresses, %v to %v", len(got), got[0], got[len(got)-1])
		}
	})
}

// An open connection proves its address once a minute, but Edgeway saves the time of the proof only once an hour.
func TestProofsAreRarelySaved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAddresses()
		marks := 0
		for range 24 * 60 {
			a.prove(netip.MustParseAddr("192.0.2.1"))
			select {
			case <-a.changed:
				marks++
			default:
			}
			time.Sleep(time.Minute)
		}
		if marks != 24 {
			t.Errorf("%d changes in a day, want 24", marks)
		}
	})
}

func TestRecalledAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at := time.Now().UTC()
		before := []source.ServerAddr{
			{Addr: netip.MustParseAddr("192.0.2.1"), ProvedAt: at},
			{Addr: netip.MustParseAddr("192.0.2.2"), ProvedAt: at, MissingSince: at},
		}
		a := newAddresses()
		a.recall(nil) // Edgeway has not read the last-known state yet
		a.prove(netip.MustParseAddr("192.0.2.3"))
		a.recall(before)
		want := nameserver.Addrs("192.0.2.3", "192.0.2.1", "192.0.2.2")
		if got := a.others(nil); !slices.Equal(got, want) {
			t.Errorf("order of trial %v, want %v", got, want)
		}
		time.Sleep(8 * 24 * time.Hour)
		a.prove(netip.MustParseAddr("192.0.2.3"))
		a.recall(before)
		wantAddrs(t, "after a week", a.all(), "192.0.2.1", "192.0.2.3")
	})
}

// An address that was proven while the host's clock was ahead still expires.
func TestProofsFromTheFuture(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newAddresses()
		future := time.Now().UTC().Add(80 * 365 * 24 * time.Hour)
		a.recall([]source.ServerAddr{{Addr: netip.MustParseAddr("192.0.2.1"), ProvedAt: future, MissingSince: future}})
		for range 9 {
			a.prove(netip.MustParseAddr("192.0.2.2"))
			time.Sleep(24 * time.Hour)
		}
		wantAddrs(t, "after a week", a.all(), "192.0.2.2")
	})
}

// A literal address in the kubeconfig counts as an address of the API server even before a TLS handshake. An address
// from an earlier kubeconfig expires.
func TestConfiguredAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parse := func(s string) *url.URL {
			u, err := url.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			return u
		}
		a := newAddresses()
		a.configure([]*url.URL{parse("https://192.0.2.1:6443")})
		wantAddrs(t, "before a connection", a.all(), "192.0.2.1")
		a.prove(netip.MustParseAddr("192.0.2.1"))
		a.configure([]*url.URL{parse("https://192.0.2.2:6443")})
		a.prove(netip.MustParseAddr("192.0.2.2"))
		wantAddrs(t, "after a change", a.all(), "192.0.2.1", "192.0.2.2")
		time.Sleep(8 * 24 * time.Hour)
		a.prove(netip.MustParseAddr("192.0.2.2"))
		wantAddrs(t, "after a week", a.all(), "192.0.2.2")
		a.configure([]*url.URL{parse("https://api.edgeway.test"), parse("http://[2001:db8::1%25eth0]:3128")})
		wantAddrs(t, "with a proxy", a.all(), "192.0.2.2", "2001:db8::1")
	})
}
