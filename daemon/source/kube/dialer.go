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
	"time"

	"edgeway/daemon/ownmark"
)

// dialer makes the connections to the API server, or to the proxy on the way to it. It marks their packets, so that
// the host's own rules leave them alone; notes the addresses that the server has; uses those when its name cannot be
// resolved; and has the kernel test idle connections, for servers that speak only HTTP/1.1.
type dialer struct {
	net.Dialer
	// dial is Options.Dial, or that of the net.Dialer.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	log  *slog.Logger
	// known is Options.KnownAddrs.
	known func() []netip.Addr
	// changed has a mark after addrs has changed, or the server is another one.
	changed chan struct{}
	mu      sync.Mutex
	host    string       // of the API server's URL
	addrs   []netip.Addr // in the order in which they were noted
}

// maxAddrs are remembered. A name may stand for other addresses each time.
const maxAddrs = 256

func newDialer(server string, o Options) *dialer {
	d := &dialer{
		Dialer: net.Dialer{
			Timeout:         10 * time.Second,
			KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: pingAfter, Interval: pingTimeout / 2, Count: 2},
			Control:         ownmark.Control(o.Mark),
		},
		log: o.Logger, known: o.KnownAddrs, changed: make(chan struct{}, 1),
	}
	if d.dial = o.Dial; d.dial == nil {
		d.dial = d.Dialer.DialContext
	}
	d.noteServer(server)
	return d
}

// noteServer notes the host in the URL of an API server.
func (d *dialer) noteServer(server string) {
	u, err := url.Parse(server)
	if err != nil {
		return
	}
	d.mu.Lock()
	d.host = u.Hostname()
	d.mu.Unlock()
	if a, err := netip.ParseAddr(u.Hostname()); err == nil {
		d.note(a)
	}
}

func (d *dialer) serverName() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.host
}

// DialContext is net.Dialer's. It notes all addresses that the name stands for, those that are not tried too: the
// next connection may use another one.
func (d *dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	if name := d.serverName(); host != name {
		go d.contain(func() { d.resolve(ctx, name) }) // a proxy: the server's own name is resolved beyond it
	}
	if literal, err := netip.ParseAddr(host); err == nil {
		d.note(literal)
	}
	conn, err := d.dial(httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		DNSDone: func(done httptrace.DNSDoneInfo) {
			for _, a := range done.Addrs {
				if addr, ok := netip.AddrFromSlice(a.IP); ok {
					d.note(addr)
				}
			}
		},
	}), network, address)
	var dns *net.DNSError
	if errors.As(err, &dns) {
		if conn := d.dialKnown(ctx, network, host, port); conn != nil {
			return conn, nil
		}
	}
	return conn, err
}

// dialKnown tries the addresses of this and the last run, of the API server and of the proxy to it; nil when none
// answers. The name that a certificate must have stays the same.
func (d *dialer) dialKnown(ctx context.Context, network, host, port string) net.Conn {
	for _, a := range d.known() {
		d.note(a)
	}
	known := d.seen()
	one := d.Dialer
	one.Timeout = max(d.Timeout/time.Duration(max(1, len(known))), 2*time.Second)
	for _, a := range known {
		if conn, err := one.DialContext(ctx, network, net.JoinHostPort(a.String(), port)); err == nil {
			d.log.Warn("name cannot be resolved, a previous address is used", "name", host, "address", a)
			return conn
		}
	}
	return nil
}

// resolve notes the addresses of the API server's name, if it can be resolved here.
func (d *dialer) resolve(ctx context.Context, name string) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), d.Timeout)
	defer cancel()
	found, err := cmp.Or(d.Resolver, net.DefaultResolver).LookupNetIP(ctx, "ip", name)
	if err != nil {
		return
	}
	for _, a := range found {
		d.note(a)
	}
}

func (d *dialer) note(a netip.Addr) {
	a = a.Unmap().WithZone("")
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.Contains(d.addrs, a) {
		return
	}
	d.addrs = append(d.addrs[max(0, len(d.addrs)+1-maxAddrs):], a)
	d.mark()
}

func (d *dialer) mark() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// seen gives the addresses, sorted.
func (d *dialer) seen() []netip.Addr {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.SortedFunc(slices.Values(d.addrs), netip.Addr.Compare)
}
