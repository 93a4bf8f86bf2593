package localnodeport

import (
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"

	"edgeway/proxiers/plan"
)

const (
	// maxDials is the maximum number of endpoints that the relay tries for one connection. An attempt may take three
	// seconds, and a Service may have thousands of endpoints.
	maxDials = 16
	// maxClients is the maximum number of clients that a target remembers. The relay connects all other clients to
	// random endpoints.
	maxClients = 4096
)

// target is a relay.Target that chooses among the endpoints of one ServicePort.
type target struct {
	name   plan.ServicePortName
	logger *slog.Logger

	mu sync.Mutex
	// connections counts each connection once, on the first call to Pick for the connection.
	connections uint64
	pool        []plan.Endpoint
	affinity    time.Duration
	// clients maps a client with session affinity to its endpoint. If a client's endpoint no longer exists, Pick
	// chooses another endpoint.
	clients map[netip.Addr]choice
}

type choice struct {
	endpoint netip.AddrPort
	expires  time.Time
}

func newTarget(b servicePool, logger *slog.Logger) *target {
	t := &target{name: b.svc.Name, logger: logger, clients: map[netip.Addr]choice{}}
	t.update(b)
	return t
}

func (t *target) update(b servicePool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pool, t.affinity = b.pool, b.svc.Affinity; t.affinity == 0 {
		clear(t.clients)
	}
	t.forget(func(c choice) bool {
		_, stays := plan.FindEndpoint(t.pool, c.endpoint)
		return !stays
	})
}

func (t *target) count() uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.connections
}

func (t *target) Pick(client netip.AddrPort, tried []netip.AddrPort) (netip.AddrPort, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(tried) == 0 {
		t.connections++
	}
	who, now := client.Addr().Unmap(), time.Now()
	known, ok := t.clients[who]
	endpoint := known.endpoint
	if !ok || now.After(known.expires) || slices.Contains(tried, endpoint) {
		if endpoint, ok = t.random(tried); !ok {
			delete(t.clients, who)
			return endpoint, false
		}
	}
	t.remember(who, endpoint, now)
	return endpoint, true
}

func (t *target) random(tried []netip.AddrPort) (netip.AddrPort, bool) {
	left := t.pool
	if len(tried) > 0 {
		left = slices.DeleteFunc(slices.Clone(left),
			func(e plan.Endpoint) bool { return slices.Contains(tried, e.Addr) })
	}
	if len(left) == 0 || len(tried) >= maxDials {
		return netip.AddrPort{}, false
	}
	return left[rand.IntN(len(left))].Addr, true
}

func (t *target) remember(who netip.Addr, endpoint netip.AddrPort, now time.Time) {
	if t.affinity == 0 {
		return
	}
	if _, known := t.clients[who]; !known && len(t.clients) >= maxClients {
		t.forget(func(c choice) bool { return now.After(c.expires) })
		if len(t.clients) >= maxClients {
			return
		}
	}
	t.clients[who] = choice{endpoint, now.Add(t.affinity)}
}

func (t *target) forget(which func(choice) bool) {
	for who, c := range t.clients {
		if which(c) {
			delete(t.clients, who)
		}
	}
}

func (t *target) Failed(endpoint netip.AddrPort, err error) {
	t.logger.Debug("cannot connect to an endpoint", "service", t.name.String(), "endpoint", endpoint, "error", err)
}
