package dialer

import (
	"context"
	"net"
	"net/netip"
	"time"

	"edgeway/daemon/ownmark"
)

// unmarkedDelay is the delay between the marked and the unmarked query for a host name.
const unmarkedDelay = 500 * time.Millisecond

// newResolvers returns a resolver for marked queries and another for unmarked queries. Marked queries bypass all
// Services. Unmarked queries are necessary because the name server may be a Service, such as the cluster's DNS. The
// response to either query may be wrong. A stub resolver on this host, such as systemd-resolved, queries upstream
// servers without the mark.
func newResolvers(mark uint32) []*net.Resolver {
	if mark == 0 {
		return []*net.Resolver{net.DefaultResolver}
	}
	marked := net.Dialer{Control: ownmark.Control(mark)}
	return []*net.Resolver{{PreferGo: true, Dial: marked.DialContext}, net.DefaultResolver}
}

// lookup returns a host name's addresses in the order in which the dialer tries them.
func (d *Dialer) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	if d.options.Lookup != nil {
		return d.options.Lookup(ctx, name)
	}
	return race[*net.Resolver, []netip.Addr]{
		candidates: d.resolvers,
		gap:        func(int) time.Duration { return unmarkedDelay },
		try: func(ctx context.Context, r *net.Resolver, _ func()) ([]netip.Addr, error) {
			return r.LookupNetIP(ctx, "ip", name)
		},
		discard: func([]netip.Addr) {},
	}.firstSuccess(ctx)
}
