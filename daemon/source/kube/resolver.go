package kube

import (
	"context"
	"net"
	"net/netip"
	"time"

	"edgeway/daemon/ownmark"
)

// unmarkedAfter is the time that the name servers have for an answer to a marked question.
const unmarkedAfter = 500 * time.Millisecond

// newResolvers returns one that asks the name servers with Edgeway's mark, past all Services, and one without it: the
// name server may be a Service, such as the cluster's DNS. The answer of either may be false; a stub on this host, such
// as systemd-resolved, asks further servers without the mark in any case.
func newResolvers(mark uint32) []*net.Resolver {
	if mark == 0 {
		return []*net.Resolver{net.DefaultResolver}
	}
	marked := net.Dialer{Control: ownmark.Control(mark)}
	return []*net.Resolver{{PreferGo: true, Dial: marked.DialContext}, net.DefaultResolver}
}

// lookup returns the addresses of a name, in the order in which to try them.
func (d *dialer) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	if d.lookUp != nil {
		return d.lookUp(ctx, name)
	}
	return race[*net.Resolver, []netip.Addr]{
		candidates: d.resolvers,
		gap:        func(int) time.Duration { return unmarkedAfter },
		try: func(ctx context.Context, r *net.Resolver, _ func()) ([]netip.Addr, error) {
			return r.LookupNetIP(ctx, "ip", name)
		},
		discard: func([]netip.Addr) {},
	}.first(ctx)
}
