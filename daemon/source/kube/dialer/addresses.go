package dialer

import (
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"time"

	"edgeway/daemon/source"
)

const (
	// maxAddrs is the maximum number of proven addresses that Edgeway keeps. A host name may resolve to a different
	// address for each connection.
	maxAddrs = 32
	// maxAddrAge is the time after which Edgeway removes a proven address, counted from the latest proof or from when
	// the host name stopped resolving to the address, whichever is later.
	maxAddrAge = 7 * 24 * time.Hour
	// proofResolution is the minimum time between two updates of ProvedAt for an address. A connection in use proves
	// its address every minute. Edgeway writes each change of ProvedAt to disk, so it updates ProvedAt rarely.
	proofResolution = time.Hour
)

// addresses holds the addresses of the API server, or of the proxy that Edgeway uses to reach it. A TLS handshake with
// the API server proves the address of the connection. A DNS response does not prove an address. DNS only supplies
// candidate addresses, and shows which proven addresses are outdated.
type addresses struct {
	// changed receives a value when the result of addresses.server changes.
	changed chan struct{}

	mu sync.Mutex
	// literalAddrs lists the literal addresses in the kubeconfig and in the proxy's URL. Literal addresses need no
	// proof, because only root can write the kubeconfig.
	literalAddrs []netip.Addr
	// fixed reports whether the URL that the dialer connects to contains an address instead of a host name.
	fixed bool
	// provenAddrs lists the proven addresses, most recently proven first.
	provenAddrs []source.ServerAddr
	// recalled reports whether provenAddrs includes the previous run's addresses.
	recalled bool
}

func newAddresses() *addresses { return &addresses{changed: make(chan struct{}, 1)} }

// configure replaces the previous literal addresses with the literal addresses in peers. peers lists the server's URL
// and, if there is a proxy, the proxy's URL. The dialer connects to the last URL in peers. Proven addresses from an
// earlier configuration remain until they expire.
func (a *addresses) configure(peers []*url.URL) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.literalAddrs, a.fixed = nil, false
	for _, u := range peers {
		literal, err := netip.ParseAddr(u.Hostname())
		if a.fixed = err == nil; a.fixed {
			a.literalAddrs = append(a.literalAddrs, plain(literal))
		}
	}
	a.mark()
}

func (a *addresses) hasRecalled() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.recalled
}

// recall adds the previous run's proven addresses unless it has already done so, and reports whether it added them.
func (a *addresses) recall(before []source.ServerAddr) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.recalled || len(before) == 0 {
		return false
	}
	a.recalled = true
	for _, b := range before {
		if a.index(b.Addr) < 0 && len(a.provenAddrs) < maxAddrs {
			a.provenAddrs = append(a.provenAddrs, b)
		}
	}
	a.mark()
	return true
}

// prove records a TLS handshake with the API server at an address. prove also removes expired addresses, but never the
// address of the latest proof.
func (a *addresses) prove(addr netip.Addr) {
	addr = plain(addr)
	now := time.Now().UTC().Truncate(time.Second)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fixed {
		a.note(a.literalAddrs, now)
	}
	latest := source.ServerAddr{Addr: addr, ProvedAt: now}
	i := a.index(addr)
	if i >= 0 {
		if old := a.provenAddrs[i]; now.Sub(old.ProvedAt).Abs() < proofResolution {
			latest = old
		} else {
			latest.MissingSince = old.MissingSince
			a.mark()
		}
		a.provenAddrs = slices.Delete(a.provenAddrs, i, i+1)
	} else {
		a.mark()
	}
	a.provenAddrs = slices.Insert(a.provenAddrs, 0, latest)
	for i := range a.provenAddrs { // correct times in the future, because TLS has just confirmed the current time
		e := &a.provenAddrs[i]
		e.ProvedAt, e.MissingSince = earlier(e.ProvedAt, now), earlier(e.MissingSince, now)
	}
	before := len(a.provenAddrs)
	others := slices.DeleteFunc(a.provenAddrs[1:], func(e source.ServerAddr) bool {
		return !e.MissingSince.IsZero() && now.Sub(e.ProvedAt) > maxAddrAge && now.Sub(e.MissingSince) > maxAddrAge
	})
	a.provenAddrs = a.provenAddrs[:1+min(len(others), maxAddrs-1)]
	if len(a.provenAddrs) != before {
		a.mark()
	}
}

// noteResolved records the addresses that the host name now resolves to.
func (a *addresses) noteResolved(found []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.note(found, time.Now().UTC().Truncate(time.Second))
}

func (a *addresses) note(found []netip.Addr, now time.Time) {
	for i := range a.provenAddrs {
		e := &a.provenAddrs[i]
		switch has := slices.ContainsFunc(found, func(f netip.Addr) bool { return plain(f) == e.Addr }); {
		case has && !e.MissingSince.IsZero():
			e.MissingSince = time.Time{}
			a.mark()
		case !has && e.MissingSince.IsZero():
			e.MissingSince = now
			a.mark()
		}
	}
}

func (a *addresses) others(list []netip.Addr) (out []netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, e := range a.provenAddrs {
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
	all := slices.Clone(a.literalAddrs)
	for _, e := range a.provenAddrs {
		all = append(all, e.Addr)
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return source.APIServer{Name: name, Addrs: slices.Compact(all), ProvenAddrs: slices.Clone(a.provenAddrs)}
}

func (a *addresses) index(addr netip.Addr) int {
	return slices.IndexFunc(a.provenAddrs, func(e source.ServerAddr) bool { return e.Addr == addr })
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
