package localnodeport

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/localnodeport/relay"
	"edgeway/proxiers/messageid"
	"edgeway/proxiers/plan"
)

// Name is the name of the localnodeport component.
const Name = "localnodeport"

// Options configures a Proxier.
type Options struct {
	Logger  *slog.Logger
	Sockets Sockets
	// Contain runs the relay's goroutines that accept connections. Contain may be nil.
	Contain proxiers.Contain
	// A panic in a connection's goroutine ends only that connection, and the relay passes the panic to OnPanic.
	OnPanic func(err error)
}

// Proxier listens on the plan's loopback addresses for each TCP NodePort that has an endpoint.
//
// A process creates one Proxier and keeps it while the daemon reloads its configuration, so clients with session
// affinity keep their endpoints. Proxier is a prometheus.Collector.
type Proxier struct {
	logger   *slog.Logger
	sockets  Sockets
	contain  proxiers.Contain
	panicked func(err error)

	// A relay.Target must never acquire mu. The Proxier holds mu while Port.Stop waits for the goroutine that accepts
	// connections.
	mu    sync.Mutex
	ports map[netip.AddrPort]*port
	// pendingPorts holds the ports that the Proxier cannot listen on yet.
	pendingPorts map[netip.AddrPort]*port
	relay        *relay.Relay
	// closedRelays counts the closed relays that still have open connections.
	closedRelays sync.WaitGroup
	// listeners and failures have one element for each address family, indexed by familyIndex.
	listeners [2]int
	failures  [2]uint64
}

// New returns a Proxier that does nothing until the first Apply.
func New(opts Options) *Proxier {
	return &Proxier{
		logger: opts.Logger, sockets: opts.Sockets, contain: opts.Contain, panicked: opts.OnPanic,
		ports: map[netip.AddrPort]*port{}, pendingPorts: map[netip.AddrPort]*port{},
	}
}

// Apply implements proxiers.Applier. If an address is in use, Apply listens on all other addresses and returns no
// error. Maintain retries until the address is free.
func (p *Proxier) Apply(ctx context.Context, change proxiers.Change) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	prev, next := change.Prev, change.Next
	gone, want := map[netip.AddrPort]bool{}, map[netip.AddrPort]servicePool{}
	if prev == nil || !slices.Equal(prev.Node.LoopbackAddrs, next.Node.LoopbackAddrs) {
		for at := range p.ports {
			gone[at] = true
		}
		eachAddress(next.Node, next.Services, func(at netip.AddrPort, b servicePool) { want[at] = b })
	} else {
		before := slices.Clone(change.Removed)
		for _, svc := range change.Changed {
			if old := prev.Find(svc.Name, svc.Family); old != nil {
				before = append(before, old)
			}
		}
		eachAddress(prev.Node, before, func(at netip.AddrPort, _ servicePool) { gone[at] = true })
		eachAddress(next.Node, change.Changed, func(at netip.AddrPort, b servicePool) { want[at] = b })
	}
	for at := range gone {
		if _, stays := want[at]; !stays {
			p.stop(at)
		}
	}
	for at, b := range want {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("NodePorts on loopback: %w", err)
		}
		p.serve(at, b)
	}
	if prev == nil {
		p.releaseUnused()
	}
	return nil
}

// releaseUnused releases inherited sockets for ports that are no longer NodePorts. Ports in p.ports keep their sockets,
// even if the Proxier cannot listen on them yet.
func (p *Proxier) releaseUnused() {
	for _, at := range p.sockets.Unused() {
		if p.ports[at] == nil {
			p.sockets.Release(at)
		}
	}
}

// Close stops accepting connections. The listening sockets stay open in Sockets. New clients wait in the accept queues
// for the next Proxier. Open connections continue.
func (p *Proxier) Close() error {
	if r := p.end(); r != nil {
		p.contain.Go(&p.closedRelays, "end of the relay", func() { _ = r.Shutdown(context.Background()) })
	}
	return nil
}

// Shutdown is like Close, but also waits until the open connections end, because the process is about to exit. When ctx
// is done, Shutdown resets the remaining connections. A normal close would tell the peer that the relay had sent all
// data.
func (p *Proxier) Shutdown(ctx context.Context) {
	if r := p.end(); r != nil {
		_ = r.Shutdown(ctx) // the error only reports that connections were reset
	}
}

func (p *Proxier) end() *relay.Relay {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, port := range p.ports {
		if port.relayed != nil {
			port.relayed.Stop()
		}
	}
	clear(p.ports)
	clear(p.pendingPorts)
	p.listeners = [2]int{}
	r := p.relay
	p.relay = nil
	return r
}

// Stats holds a Proxier's statistics. Active and Listeners are current values. All other values are counts since the
// creation of the Proxier.
type Stats struct {
	relay.Stats
	// Listeners counts the addresses that the Proxier listens on, and ListenFailures counts failed attempts to listen.
	Listeners      map[plan.Family]int
	ListenFailures map[plan.Family]uint64
}

// Stats returns current statistics. Any goroutine may call Stats.
func (p *Proxier) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := Stats{
		Listeners:      map[plan.Family]int{plan.IPv4: p.listeners[0], plan.IPv6: p.listeners[1]},
		ListenFailures: map[plan.Family]uint64{plan.IPv4: p.failures[0], plan.IPv6: p.failures[1]},
	}
	if p.relay != nil {
		s.Stats = p.relay.Stats()
	}
	return s
}

// Connections implements proxiers.Counter. The counts survive a configuration reload, but not a daemon restart.
func (p *Proxier) Connections(from *plan.Plan, add func(*plan.ServicePort, plan.FrontendKind, uint64)) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for at, port := range p.ports {
		svc := from.Find(port.target.name, plan.FamilyOf(at.Addr()))
		if n := port.target.count(); n > 0 && svc != nil {
			add(svc, plan.NodePort, n)
		}
	}
	return nil
}

// Faults implements proxiers.Reporter. Faults returns a fault for each port that the Proxier cannot listen on, sorted
// by address.
func (p *Proxier) Faults() (out []fault.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range slices.SortedFunc(maps.Keys(p.pendingPorts), netip.AddrPort.Compare) {
		known := p.pendingPorts[at]
		out = append(out, proxiers.NewPortFault(fault.Problem, at, known.target.name.String(), known.err))
	}
	return out
}

func (p *Proxier) paused(reason error) {
	p.logger.Warn("new connections to loopback NodePorts must wait",
		"message_id", messageid.LoopbackNodePortsFull, "error", reason)
}

func familyIndex(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

type servicePool struct {
	svc  *plan.ServicePort
	pool []plan.Endpoint
}

// eachAddress calls visit for each loopback address and port where clients can reach one of the services.
func eachAddress(node *plan.Node, services []*plan.ServicePort, visit func(netip.AddrPort, servicePool)) {
	if len(node.LoopbackAddrs) == 0 {
		return
	}
	for _, svc := range services {
		for i := range svc.Frontends {
			f := &svc.Frontends[i]
			if f.Kind != plan.NodePort {
				continue
			}
			pool, ok := svc.LoopbackPool(f)
			if !ok {
				continue
			}
			for _, addr := range node.LoopbackAddrs {
				if plan.FamilyOf(addr) == svc.Family {
					visit(netip.AddrPortFrom(addr, f.Port), servicePool{svc, svc.Pools[pool]})
				}
			}
		}
	}
}
