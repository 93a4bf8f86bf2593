package sim

import (
	"context"
	"net"
	"net/netip"
	"sync"
	"time"
)

// serverName is the API server's host name in the kubeconfig. Half of the seeds use a host name instead of an address.
const serverName = "api.test"

type names struct {
	mu   sync.Mutex
	addr netip.Addr
	lie  dnsFault
}

// dnsFault describes how the name server misbehaves. The zero value describes an honest name server.
type dnsFault struct {
	addrs  []netip.Addr // the addresses in responses
	beside bool         // responses also contain the true address
	hangs  bool
	none   bool // the name server reports that the name does not exist
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

func (n *names) set(l dnsFault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.lie = l
}

func (n *names) move(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addr = netip.MustParseAddrPort(addr).Addr()
}

// drawDNSFault sets a random name-server fault, or none. The fault lasts for a whole round, even after all other faults
// have ended, because the daemon keeps using an address that TLS has verified. After the API server moves, TLS has not
// verified the new address yet, so the name server must not lie.
func (s *simulation) drawDNSFault() {
	if !s.named || s.rand.IntN(2) == 0 || s.moved {
		s.names.set(dnsFault{})
		return
	}
	l := dnsFault{beside: s.rand.IntN(4) == 0}
	switch s.rand.IntN(5) {
	case 0:
		l.hangs = true
	case 1:
		l.none = true
	case 2: // an address that no server listens on, or a Service address
		l.addrs = []netip.Addr{netip.MustParseAddr(pick(s.rand, "203.0.113.7", "10.96.1.2", "10.96.1.4"))}
	case 3: // the address of a foreign server
		l.addrs = []netip.Addr{netip.MustParseAddr(foreignServerAddr)}
	default:
		for i := range 255 {
			l.addrs = append(l.addrs, netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}))
		}
	}
	s.notef("the name server lies: %d addresses, the true one among them: %t, hangs: %t, no such name: %t",
		len(l.addrs), l.beside, l.hangs, l.none)
	s.names.set(l)
}

// foreignServerAddr is the address of a server that always listens but is not the API server.
const foreignServerAddr = "192.0.2.66"
