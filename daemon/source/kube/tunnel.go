package kube

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// tunnels are the connections to a proxy. The TLS handshake with the API server comes after the dial there, so a
// connection to the wrong address shows only later that it leads nowhere.
type tunnels struct {
	mu sync.Mutex
	// used reports whether there is a proxy on the way, and TLS that is verified beyond it.
	used bool
	// unproven are the connections without a handshake, by their local address.
	unproven map[string]*time.Timer
	failed   map[netip.Addr]time.Time
}

const (
	// tunnelTime is the time for the handshake at an address that no handshake has proven before.
	tunnelTime = 4 * time.Second
	// provenTunnelTime is the same for a proven address, which may be slow.
	provenTunnelTime = 10 * time.Second
	// failedTime is the time for which an address that failed is not tried.
	failedTime = 30 * time.Second
)

func (t *tunnels) use(used bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.used = used
}

// opened closes the connection later unless a handshake proves it. Without another proven address it has all the time.
func (t *tunnels) opened(addrs *addresses, conn net.Conn) {
	remote, ok := remoteAddr(conn)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.used || !ok || len(addrs.others([]netip.Addr{remote})) == 0 {
		return
	}
	limit := tunnelTime
	if addrs.isProven(remote) {
		limit = provenTunnelTime
	}
	if t.unproven == nil {
		t.unproven, t.failed = map[string]*time.Timer{}, map[netip.Addr]time.Time{}
	}
	local := conn.LocalAddr().String()
	t.unproven[local] = time.AfterFunc(limit, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if _, ok := t.unproven[local]; !ok {
			return
		}
		delete(t.unproven, local)
		t.failed[plain(remote)] = time.Now()
		_ = conn.Close()
	})
}

// proven ends the wait for a connection.
func (t *tunnels) proven(conn net.Conn, addr netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	local := conn.LocalAddr().String()
	if timer, ok := t.unproven[local]; ok {
		timer.Stop()
		delete(t.unproven, local)
	}
	delete(t.failed, plain(addr))
}

// usable returns the addresses that have not failed lately.
func (t *tunnels) usable(addrs []netip.Addr) (out []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range addrs {
		if at, failed := t.failed[plain(a)]; !failed || time.Since(at) > failedTime {
			out = append(out, a)
		}
	}
	return out
}

// forgive forgets the failures, as no address is left that has not failed.
func (t *tunnels) forgive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.failed)
}

// remoteAddr returns the address at the other end of a TCP connection.
func remoteAddr(conn net.Conn) (netip.Addr, bool) {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	return at.Addr(), err == nil
}
