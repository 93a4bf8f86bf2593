package sim

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// serverName is the name of the API server in the kubeconfig, in the half of the seeds that have one there.
const serverName = "api.test"

// names is the name server.
type names struct {
	mu   sync.Mutex
	addr netip.Addr // of the API server
	lie  lie
}

// lie is how the name server misbehaves; the zero value is an honest one.
type lie struct {
	addrs  []netip.Addr // its answer
	beside bool         // the true address is among them
	hangs  bool
	none   bool // there is no such name
}

func (n *names) lookup(ctx context.Context, name string) ([]netip.Addr, error) {
	n.mu.Lock()
	l, addr := n.lie, n.addr
	n.mu.Unlock()
	fail := func(why string) ([]netip.Addr, error) {
		return nil, &net.DNSError{Err: why, Name: name, IsNotFound: l.none, IsTimeout: l.hangs}
	}
	switch {
	case l.hangs:
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Second):
			return fail("i/o timeout")
		}
	case l.none:
		return fail("no such host")
	case len(l.addrs) == 0:
		return []netip.Addr{addr}, nil
	case l.beside:
		return append(append([]netip.Addr{}, l.addrs...), addr), nil
	}
	return l.addrs, nil
}

func (n *names) set(l lie) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lie = l
}

// move makes the name stand for another address.
func (n *names) move(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addr = netip.MustParseAddrPort(addr).Addr()
}

// lying has the name server lie for a whole round, its calm included: an address that was proven by TLS serves
// meanwhile. A server that has just moved was not proven yet.
func (s *simulation) lying() {
	if !s.named || s.rand.IntN(2) == 0 || s.moved {
		s.names.set(lie{})
		return
	}
	l := lie{beside: s.rand.IntN(4) == 0}
	switch s.rand.IntN(5) {
	case 0:
		l.hangs = true
	case 1:
		l.none = true
	case 2: // nothing is there, or an address of a Service
		l.addrs = []netip.Addr{netip.MustParseAddr(pick(s.rand, "203.0.113.7", "10.96.1.2", "10.96.1.4"))}
	case 3: // an impostor is there
		l.addrs = []netip.Addr{netip.MustParseAddr(impostorAddr)}
	default:
		for i := range 255 {
			l.addrs = append(l.addrs, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
		}
	}
	s.notef("the name server lies: %d addresses, the true one among them: %t, hangs: %t, no such name: %t", len(l.addrs), l.beside, l.hangs, l.none)
	s.names.set(l)
}

// impostorAddr is where a server listens that is not the API server, all the time.
const impostorAddr = "192.0.2.66"
