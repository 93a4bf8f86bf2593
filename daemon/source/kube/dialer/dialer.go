// Package dialer connects to the API server or to its proxy. The packets of the dialer's connections carry a mark, so
// that Edgeway's own rules do not apply to them.
//
// A Dialer first tries the addresses that the server's host name resolves to. If none of the resolved addresses leads
// to the API server, the Dialer tries the addresses where an earlier TLS handshake with the API server has succeeded. A
// false DNS response therefore does not cut the host off from the API server.
package dialer

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"edgeway/daemon/ownmark"
	"edgeway/daemon/source"
)

// The kernel sends a TCP keep-alive probe after PingAfter without data, and aborts the connection after PingTimeout
// without an answer.
const (
	PingAfter   = 15 * time.Second
	PingTimeout = 10 * time.Second
)

// Options configures a Dialer. Logger is required.
type Options struct {
	// Mark is the packet mark of the Dialer's connections, or 0 for no mark.
	Mark uint32
	// KnownAddrs returns the API server addresses that TLS handshakes proved in an earlier run, most recent first.
	// KnownAddrs returns nil until the last-known state is loaded.
	KnownAddrs func() []source.ServerAddr
	// Dial opens the connections. The default is net.Dialer.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Lookup returns the addresses of a host name. By default, the Dialer queries this host's name servers.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	Logger *slog.Logger
}

// Dialer opens the connections to the API server or to its proxy. Use New to create a Dialer. A Dialer is safe for
// concurrent use.
type Dialer struct {
	options   Options
	addrs     *addresses
	resolvers []*net.Resolver // in query order; see newResolvers
	tunnels   tunnels
	// usedOtherAddr reports whether the last connection used an address that the host name does not resolve to.
	usedOtherAddr atomic.Bool
}

// timeout is the maximum duration of a connection attempt. Dialer.search takes at most 2*timeout.
const timeout = 10 * time.Second

// New returns a Dialer. Call Configure before opening connections.
func New(o Options) *Dialer {
	if o.Dial == nil {
		d := net.Dialer{
			Timeout: timeout,
			// HTTP/1.1 has no health check, unlike HTTP/2.
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: PingAfter, Interval: PingTimeout / 2, Count: 2},
			Control:         ownmark.Control(o.Mark),
		}
		o.Dial = d.DialContext
	}
	return &Dialer{options: o, addrs: newAddresses(), resolvers: newResolvers(o.Mark)}
}

// Configure replaces the literal addresses from the previous kubeconfig with the literal addresses in peers. peers
// lists the server's URL and, if there is a proxy, the proxy's URL. The Dialer connects to the last URL in peers.
// Proven addresses from an earlier configuration remain until they expire. verified reports whether the client verifies
// the API server's certificate.
func (d *Dialer) Configure(peers []*url.URL, verified bool) {
	d.addrs.configure(peers)
	d.tunnels.use(verified && len(peers) > 1)
}

// Server returns the literal and the proven addresses of the API server or of its proxy.
func (d *Dialer) Server(name string) source.APIServer { return d.addrs.server(name) }

// Changed returns a channel that receives a value when the result of Server changes.
func (d *Dialer) Changed() <-chan struct{} { return d.addrs.changed }

// Recall adds the proven addresses from KnownAddrs unless it has already done so, and reports whether it added any.
func (d *Dialer) Recall() bool {
	known := d.options.KnownAddrs
	return known != nil && !d.addrs.hasRecalled() && d.addrs.recall(known())
}

const (
	// provenDelay is the time after which the dialer also tries the proven addresses that the host name does not
	// resolve to.
	provenDelay = 3 * time.Second
	// familyGap is the delay between the attempts for the two address families, as in net.Dialer (RFC 6555).
	familyGap = 300 * time.Millisecond
	// The dialer starts the attempts for all proven addresses within provenSpan.
	provenSpan = 4 * time.Second
)

// tryFunc connects to a literal address with a port, and calls connected before starting the TLS handshake.
type tryFunc func(ctx context.Context, address string, connected func()) (net.Conn, error)

// DialFunc has the signature of net.Dialer.DialContext.
type DialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// contained wraps dial in a function that returns a panic as an error, because net/http (Go 1.26) dials in a separate
// goroutine.
func contained(dial DialFunc) DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		r := containedAttempt(func() (net.Conn, error) { return dial(ctx, network, address) })
		return r.value, r.err
	}
}

// DialContext opens a TCP connection to a literal address, to a proxy, or to a server without TLS.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return contained(d.dialTCP)(ctx, network, address)
}

func (d *Dialer) dialTCP(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return d.options.Dial(ctx, network, address)
	}
	conn, err := d.search(ctx, host, port, func(ctx context.Context, address string, _ func()) (net.Conn, error) {
		return d.options.Dial(ctx, network, address)
	})
	if err == nil {
		d.tunnels.limitHandshake(d.addrs, conn)
	}
	return conn, err
}

// DialTLS returns a function for http.Transport.DialTLSContext. The function verifies the server's certificate at each
// address that it tries. It connects through the transport's DialContext, because client-go closes only connections
// from DialContext when an exec plugin returns a new certificate.
func (d *Dialer) DialTLS(t *http.Transport) DialFunc {
	return contained(func(ctx context.Context, network, address string) (net.Conn, error) {
		host, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		config := &tls.Config{MinVersion: tls.VersionTLS12}
		if t.TLSClientConfig != nil {
			config = t.TLSClientConfig.Clone()
		}
		if config.ServerName == "" {
			config.ServerName = host
		}
		try := func(ctx context.Context, address string, connected func()) (net.Conn, error) {
			raw, err := t.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			connected()
			return handshake(ctx, raw, config, t.TLSHandshakeTimeout)
		}
		if _, err := netip.ParseAddr(host); err == nil {
			return try(ctx, address, func() {})
		}
		return d.search(ctx, host, port, try)
	})
}

var errHandshake = errors.New("the TLS handshake timed out")

func handshake(ctx context.Context, raw net.Conn, config *tls.Config, limit time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, errHandshake)
	defer cancel()
	conn := tls.Client(raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		_ = raw.Close()
		if errors.Is(context.Cause(ctx), errHandshake) {
			err = errHandshake
		}
		return nil, err
	}
	return conn, nil
}

// search connects to one of the host name's addresses. If the host name's addresses fail or are slow, search also tries
// the remaining proven addresses.
func (d *Dialer) search(ctx context.Context, host, port string, try tryFunc) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*timeout)
	defer cancel()
	d.Recall()
	var (
		tried         atomic.Pointer[[]netip.Addr]
		named, proven <-chan outcome[net.Conn]
		untried       = true // there are proven addresses that this search has not tried
		fault         error
	)
	named = begin(func() (net.Conn, error) { return d.dialByName(ctx, host, port, try, &tried) })
	late := time.After(provenDelay)
	for named != nil || proven != nil {
		select {
		case r := <-named:
			if r.err == nil {
				abandon(proven)
				return d.logNameChange(host, r.value, nil)
			}
			fault, named = r.err, nil
		case <-late:
		case r := <-proven:
			if r.err == nil {
				abandon(named)
				return d.logNameChange(host, r.value, cmp.Or(fault, errSlow))
			}
			proven = nil
		}
		late = time.After(provenDelay)
		untried = d.Recall() || untried // the last-known state may load during the search
		if proven == nil && untried {
			untried = false
			proven = begin(func() (net.Conn, error) { return d.dialByProof(ctx, port, try, tried.Load()) })
		}
	}
	d.tunnels.forgive()
	return nil, fault
}

// Prove records a connection's remote address after net/http has verified the API server's certificate.
func (d *Dialer) Prove(conn net.Conn) {
	if addr, ok := remoteAddr(conn); ok {
		d.tunnels.cancelLimit(conn, addr)
		d.addrs.prove(addr)
	}
}

var errSlow = errors.New("no answer yet")

func begin(f func() (net.Conn, error)) <-chan outcome[net.Conn] {
	out := make(chan outcome[net.Conn], 1)
	go func() { out <- containedAttempt(f) }()
	return out
}

// abandon closes a connection that opens after the search has ended.
func abandon(from <-chan outcome[net.Conn]) {
	if from == nil {
		return
	}
	go func() {
		if r := <-from; r.err == nil {
			_ = r.value.Close()
		}
	}()
}

// dialByName resolves the host name, stores the addresses to try in *tried, and connects to one of them.
func (d *Dialer) dialByName(
	ctx context.Context, host, port string, try tryFunc, tried *atomic.Pointer[[]netip.Addr],
) (net.Conn, error) {
	found, err := d.lookup(ctx, host)
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: err} // net.Dialer returns the same type
	}
	d.addrs.noteResolved(found)
	addrs := d.tunnels.usable(orderByFamily(found))
	tried.Store(&addrs)
	gap := func(i int) time.Duration {
		if i == 1 && addrs[0].Is4() != addrs[1].Is4() {
			return familyGap
		}
		return slowPeerTime
	}
	return newRace(addrs, port, gap, try).firstSuccess(ctx)
}

func (d *Dialer) dialByProof(ctx context.Context, port string, try tryFunc, tried *[]netip.Addr) (net.Conn, error) {
	if tried == nil {
		tried = new([]netip.Addr)
	}
	addrs := d.tunnels.usable(d.addrs.others(*tried))
	gap := min(familyGap, provenSpan/time.Duration(max(1, len(addrs))))
	// A stalled TLS handshake does not delay the next attempt.
	soon := func(ctx context.Context, address string, _ func()) (net.Conn, error) {
		return try(ctx, address, func() {})
	}
	return newRace(addrs, port, func(int) time.Duration { return gap }, soon).firstSuccess(ctx)
}

func newRace(
	addrs []netip.Addr, port string, gap func(int) time.Duration, try tryFunc,
) race[netip.Addr, net.Conn] {
	return race[netip.Addr, net.Conn]{
		candidates: addrs, gap: gap,
		try: func(ctx context.Context, a netip.Addr, connected func()) (net.Conn, error) {
			return try(ctx, net.JoinHostPort(a.String(), port), connected)
		},
		discard: func(c net.Conn) { _ = c.Close() },
	}
}

// orderByFamily moves the first address whose family differs from that of found[0] to the second position, as
// net.Dialer does (RFC 6555), and returns at most maxAddrs addresses.
func orderByFamily(found []netip.Addr) []netip.Addr {
	addrs := slices.Clone(found)
	if len(addrs) > 0 {
		i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() != addrs[0].Is4() })
		if i > 1 {
			other := addrs[i]
			addrs = slices.Insert(slices.Delete(addrs, i, i+1), 1, other)
		}
	}
	return addrs[:min(len(addrs), maxAddrs)]
}

// logNameChange logs a message when the host name stops resolving to the API server, or resolves to it again. A nil why
// means that the host name resolves to the API server.
func (d *Dialer) logNameChange(host string, conn net.Conn, why error) (net.Conn, error) {
	switch before := d.usedOtherAddr.Swap(why != nil); {
	case why != nil && !before:
		d.options.Logger.Warn("server name unusable, using a previous address",
			"name", host, "address", conn.RemoteAddr(), "error", why)
	case why == nil && before:
		d.options.Logger.Info("name resolves to the API server again", "name", host)
	}
	return conn, nil
}
