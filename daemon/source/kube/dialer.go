package kube

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http/httptrace"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dialer makes the connections to the API server, or to the proxy on the way to it. It marks their packets, so that
// the host's own rules leave them alone; notes the addresses that the server has; uses those when its name cannot be
// resolved; and has the kernel test idle connections, for servers that speak only HTTP/1.1.
type dialer struct {
	net.Dialer
	// host is that of the API server's URL.
	host string
	log  *slog.Logger
	// known and isService are Options.KnownAddrs and Options.IsService.
	known     func() []netip.Addr
	isService func(netip.Addr) bool
	// changed has a mark after addrs has changed.
	changed chan struct{}
	mu      sync.Mutex
	addrs   []netip.Addr // in the order in which they were noted
}

// maxAddrs are remembered. A name may stand for other addresses each time.
const maxAddrs = 256

func newDialer(server string, o Options) *dialer {
	d := &dialer{
		Dialer: net.Dialer{
			Timeout:         10 * time.Second,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: pingAfter, Interval: pingTimeout / 2, Count: 2},
		},
		log: o.Logger, known: o.KnownAddrs, isService: o.IsService,
		changed: make(chan struct{}, 1),
	}
	if o.Mark != 0 {
		d.Control = marking(o.Mark)
	}
	if u, err := url.Parse(server); err == nil {
		d.host = u.Hostname()
		if a, err := netip.ParseAddr(d.host); err == nil {
			d.note(a)
		}
	}
	return d
}

// marking gives a net.Dialer.Control that marks a socket's packets. Without CAP_NET_ADMIN, as in a dry run by a user,
// they stay as they are.
func marking(mark uint32) func(network, address string, c syscall.RawConn) error {
	return func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(mark)) })
	}
}

// DialContext is net.Dialer's. It notes all addresses that the name stands for, those that are not tried too: the
// next connection may use another one.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if host != d.host {
		go d.resolve(ctx) // a proxy: the server's own name is resolved beyond it
	}
	var resolved []netip.Addr
	conn, err := d.Dialer.DialContext(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSDone: func(done httptrace.DNSDoneInfo) {
			for _, a := range done.Addrs {
				if addr, ok := netip.AddrFromSlice(a.IP); ok {
					resolved = append(resolved, d.note(addr))
				}
			}
		},
	}), network, address)
	if literal, err := netip.ParseAddr(host); err == nil {
		resolved = append(resolved, d.note(literal))
	}
	var dns *net.DNSError
	switch {
	case err == nil:
		return conn, nil
	case errors.As(err, &dns):
		conn = d.dialKnown(ctx, network, host, port)
	case slices.ContainsFunc(resolved, d.isService):
		conn = d.dialByRules(ctx, network, address)
	}
	if conn == nil {
		return nil, err
	}
	return conn, nil
}

// dialKnown tries the addresses from before; nil when none answers. The name that is asked for, and that a
// certificate must have, stays the same.
func (d *dialer) dialKnown(ctx context.Context, network, host, port string) net.Conn {
	known := d.seen()
	if len(known) == 0 {
		known = d.known()
	}
	one := d.Dialer
	one.Timeout = max(d.Timeout/time.Duration(max(1, len(known))), 2*time.Second)
	for _, a := range known {
		d.note(a)
		if conn, err := one.DialContext(ctx, network, net.JoinHostPort(a.String(), port)); err == nil {
			d.log.Warn("name cannot be resolved, an address from before is used", "name", host, "address", a)
			return conn
		}
	}
	return nil
}

// dialByRules is for a kubeconfig with the ClusterIP of the API server's own Service, where only the rules of this
// host lead to it; nil when they do not. A name or address outside of the cluster is better: these rules must be there
// before the first connection, of a manifest or the last-known state. No other Service may have the address
// (see planner), so they lead to the API server.
func (d *dialer) dialByRules(ctx context.Context, network, address string) net.Conn {
	unmarked := d.Dialer
	unmarked.Control = nil
	conn, err := unmarked.DialContext(ctx, network, address)
	if err != nil {
		return nil
	}
	return conn
}

// resolve notes the addresses of the API server's name, if it can be resolved here.
func (d *dialer) resolve(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.Timeout)
	defer cancel()
	found, err := cmp.Or(d.Resolver, net.DefaultResolver).LookupNetIP(ctx, "ip", d.host)
	if err != nil {
		return
	}
	for _, a := range found {
		d.note(a)
	}
}

// note gives the address in the form that is noted.
func (d *dialer) note(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.addrs, a) {
		return a
	}
	d.addrs = append(d.addrs[max(0, len(d.addrs)+1-maxAddrs):], a)
	select {
	case d.changed <- struct{}{}:
	default:
	}
	return a
}

// seen gives the addresses, sorted.
func (d *dialer) seen() []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(slices.Values(d.addrs), netip.Addr.Compare)
}
