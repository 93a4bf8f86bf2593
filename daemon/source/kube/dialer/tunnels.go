package dialer

import (
	"net"
	"net/netip"
	"sync"
	"time"
)

// tunnels tracks the connections to a proxy. The TLS handshake with the API server starts only after the dial, so a
// connection to the wrong address fails only after the dial has succeeded.
type tunnels struct {
	mu sync.Mutex
	// enabled reports whether connections use a proxy and the client verifies the API server's certificate.
	enabled bool
	// handshakeTimers holds a timer for each connection with an incomplete TLS handshake, keyed by the connection's
	// local address.
	handshakeTimers map[string]*time.Timer
	failed          map[netip.Addr]time.Time
}

const (
	// tunnelTime is the maximum time for a TLS handshake at an unproven address.
	tunnelTime = 4 * time.Second
	// provenTunnelTime is the maximum time for a TLS handshake at a proven address, which may be slow.
	provenTunnelTime = 10 * time.Second
	// The dialer skips a failed address for skipTime.
	skipTime = 30 * time.Second
)

func (t *tunnels) use(used bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.enabled = used
}

// limitHandshake closes the connection after a time limit unless a TLS handshake succeeds first. If no other address is
// proven, there is no time limit.
func (t *tunnels) limitHandshake(addrs *addresses, conn net.Conn) {
	remote, ok := remoteAddr(conn)
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.enabled || !ok || len(addrs.others([]netip.Addr{remote})) == 0 {
		return
	}
	limit := tunnelTime
	if addrs.isProven(remote) {
		limit = provenTunnelTime
	}
	if t.handshakeTimers == nil {
		t.handshakeTimers, t.failed = map[string]*time.Timer{}, map[netip.Addr]time.Time{}
	}
	local := conn.LocalAddr().String()
	t.handshakeTimers[local] = time.AfterFunc(limit, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if _, ok := t.handshakeTimers[local]; !ok {
			return
		}
		delete(t.handshakeTimers, local)
		t.failed[plain(remote)] = time.Now()
		_ = conn.Close()
	})
}

// cancelLimit cancels a connection's time limit after the TLS handshake.
func (t *tunnels) cancelLimit(conn net.Conn, addr netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	local := conn.LocalAddr().String()
	if timer, ok := t.handshakeTimers[local]; ok {
		timer.Stop()
		delete(t.handshakeTimers, local)
	}
	delete(t.failed, plain(addr))
}

func (t *tunnels) usable(addrs []netip.Addr) (out []netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, a := range addrs {
		if at, failed := t.failed[plain(a)]; !failed || time.Since(at) > skipTime {
			out = append(out, a)
		}
	}
	return out
}

func (t *tunnels) forgive() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.failed)
}

func remoteAddr(conn net.Conn) (netip.Addr, bool) {
	at, err := netip.ParseAddrPort(conn.RemoteAddr().String())
	return at.Addr(), err == nil
}
