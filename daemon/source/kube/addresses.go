package kube

import (
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"edgeway/daemon/source"
)

const (
	// maxAddrs limits the number of proven addresses, because a host name may resolve to a different address for each
	// connection.
	maxAddrs = 32
	// keepAddr is the age at which Edgeway removes a proven address. Both the last proof and the time when the host
	// name stopped resolving to the address must be older than keepAddr.
	keepAddr = 7 * 24 * time.Hour
	// proofStep is the resolution of proof times. Because Edgeway writes each change to disk, proof times have a low
	// resolution: a connection in use proves its address every minute.
	proofStep = time.Hour
)

// addresses holds the addresses of the API server, or of the proxy that Edgeway uses to reach it. A TLS handshake with
// the API server proves the address of the connection. A DNS response proves no address: DNS only supplies addresses to
// try, and shows which proven addresses are outdated.
type addresses struct {
	// changed receives a value when the result of addresses.server changes.
	changed chan struct{}

	mu sync.Mutex
	// configured lists the literal addresses in the kubeconfig and in the proxy's URL. Literal addresses need no proof,
	// because only root can write the kubeconfig.
	configured []netip.Addr
	// fixed reports whether the URL of the server or the proxy contains an address instead of a host name.
	fixed bool
	// proven lists the proven addresses, latest proof first.
	proven []source.ServerAddr
	// recalled reports whether provenAddrs includes the addresses of the previous run.
	recalled bool
}

func newAddresses() *addresses { return &addresses{changed: make(chan struct{}, 1)} }

// configure replaces the literal addresses with the addresses in peers, which holds the URLs of the server and of its
// proxy. The dialer connects to the last URL in peers. Proven addresses from an earlier configuration expire.
func (a *addresses) configure(peers []*url.URL) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.configured, a.fixed = nil, false
	for _, u := range peers {
		literal, err := netip.ParseAddr(u.Hostname())
		if a.fixed = err == nil; a.fixed {
			a.configured = append(a.configured, plain(literal))
		}
	}
	a.mark()
}

// recall adds the proven addresses of the previous run, but only once.
func (a *addresses) recall(before []source.ServerAddr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.recalled || len(before) == 0 {
		return
	}
	a.recalled = true
	for _, b := range before {
		if a.index(b.Addr) < 0 && len(a.proven) < maxAddrs {
			a.proven = append(a.proven, b)
		}
	}
	a.mark()
}

// prove records a TLS handshake with the API server at an address. prove also removes expired addresses, but never the
// address of the latest proof.
func (a *addresses) prove(addr netip.Addr) {
	addr = plain(addr)
	now := time.Now().UTC().Truncate(time.Second)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fixed {
		a.note(a.configured, now)
	}
	latest := source.ServerAddr{Addr: addr, Proved: now}
	i := a.index(addr)
	if i >= 0 {
		if old := a.proven[i]; now.Sub(old.Proved).Abs() < proofStep {
			latest = old
		} else {
			latest.Missing = old.Missing
			a.mark()
		}
		a.proven = slices.Delete(a.proven, i, i+1)
	} else {
		a.mark()
	}
	a.proven = slices.Insert(a.proven, 0, latest)
	for i := range a.proven { // correct times in the future, because TLS has just confirmed the current time
		e := &a.proven[i]
		e.Proved, e.Missing = earlier(e.Proved, now), earlier(e.Missing, now)
	}
	before := len(a.proven)
	others := slices.DeleteFunc(a.proven[1:], func(e source.ServerAddr) bool {
		return !e.Missing.IsZero() && now.Sub(e.Proved) > keepAddr && now.Sub(e.Missing) > keepAddr
	})
	a.proven = a.proven[:1+min(len(others), maxAddrs-1)]
	if len(a.proven) != before {
		a.mark()
	}
}

// answered records the addresses that the host name now resolves to.
func (a *addresses) answered(found []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note(found, time.Now().UTC().Truncate(time.Second))
}

func (a *addresses) note(found []netip.Addr, now time.Time) {
	for i := range a.proven {
		e := &a.proven[i]
		switch has := slices.ContainsFunc(found, func(f netip.Addr) bool { return plain(f) == e.Addr }); {
		case has && !e.Missing.IsZero():
			e.Missing = time.Time{}
			a.mark()
		case !has && e.Missing.IsZero():
			e.Missing = now
			a.mark()
		}
	}
}

func (a *addresses) others(list []netip.Addr) (out []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.proven {
		if !slices.ContainsFunc(list, func(l netip.Addr) bool { return plain(l) == e.Addr }) {
			out = append(out, e.Addr)
		}
	}
	return out
}

func (a *addresses) isProven(addr netip.Addr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.index(plain(addr)) >= 0
}

func (a *addresses) server(name string) source.APIServer {
	a.mu.Lock()
	defer a.mu.Unlock()
	all := slices.Clone(a.configured)
	for _, e := range a.proven {
		all = append(all, e.Addr)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return source.APIServer{Name: name, Addrs: slices.Compact(all), Proven: slices.Clone(a.proven)}
}

func (a *addresses) index(addr netip.Addr) int {
	return slices.IndexFunc(a.proven, func(e source.ServerAddr) bool { return e.Addr == addr })
}

func (a *addresses) mark() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

func plain(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

func earlier(a, b time.Time) time.Time {
	if a.After(b) {
		return b
	}
	return a
}
