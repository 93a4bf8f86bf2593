// Package healthcheck serves the healthCheckNodePorts of LoadBalancer Services with external traffic policy Local. A
// load balancer sends HTTP requests to each host to find out whether the host has an endpoint of the Service.
//
// The response is identical to that of kube-proxy v1.36 (pkg/proxy/healthcheck), because load balancers expect that
// response. Unlike kube-proxy, Edgeway opens a listener for each address that accepts NodePort connections. Edgeway
// closes a listener when the host loses the listener's address. No listener has a wildcard address, because an address
// that does not accept NodePort connections must not appear healthy.
package healthcheck

import (
	"context"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/healthcheck/httpbound"
	"edgeway/proxiers/messageid"
	"edgeway/proxiers/plan"
)

// Name is the healthcheck follower's name.
const Name = "healthcheck"

// Options configures a Proxier. Healthy is never nil.
type Options struct {
	Logger *slog.Logger
	// Healthy reports whether the daemon is keeping this host's Services in sync. The servers call Healthy for each
	// request, from any goroutine.
	Healthy func() bool
	// Contain runs the servers' goroutines. Contain may be nil.
	Contain proxiers.Contain
}

// Proxier serves the health checks from the first Apply until Close. A process creates only one Proxier. The Proxier
// keeps responding to load balancers while the daemon reloads its configuration, even during a long full sync. Proxier
// is a prometheus.Collector.
type Proxier struct {
	opts    Options
	servers map[netip.AddrPort]*server
	limit   *httpbound.Limit
	failed  prometheus.Counter
	running sync.WaitGroup // counts the servers' goroutines

	mu sync.Mutex
	// pendingAddrs holds the addresses on which the Proxier cannot listen yet.
	pendingAddrs map[netip.AddrPort]*pendingAddr
}

// pendingAddr is an address that the Proxier will try to listen on again.
type pendingAddr struct {
	check *plan.HealthCheck
	err   error
	delay time.Duration
	due   time.Time
}

// The delay between attempts to listen on an address starts at minDelay and doubles until it reaches maxDelay.
const (
	minDelay = 250 * time.Millisecond
	maxDelay = 30 * time.Second
)

// maxConns is the maximum number of connections to all servers together. The limit leaves room for a few load balancers
// that each connect to every Service. 1,024 connections need 32 MB of memory.
const maxConns = 1024

// New returns a Proxier that does nothing until the first Apply.
func New(opts Options) *Proxier {
	return &Proxier{
		opts: opts, limit: httpbound.NewLimit(maxConns), servers: map[netip.AddrPort]*server{},
		pendingAddrs: map[netip.AddrPort]*pendingAddr{},
		failed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "edgeway_healthcheck_bind_failures_total",
			Help: "Failed attempts to listen on a healthCheckNodePort.",
		}),
	}
}

// Apply starts and stops servers without interrupting unchanged servers. If Apply cannot bind an address, it serves all
// other addresses and returns no error. For example, another program may be using the port, or an IPv6 address may
// still be undergoing duplicate address detection. Maintain retries until it can bind the address.
func (p *Proxier) Apply(ctx context.Context, change proxiers.Change) error {
	if unchanged(change) {
		return nil
	}
	want := wantedChecks(change.Next)
	for addr, s := range p.servers {
		if want[addr] == nil {
			s.close()
			delete(p.servers, addr)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for addr := range p.pendingAddrs {
		if want[addr] == nil {
			delete(p.pendingAddrs, addr)
		}
	}
	for addr, check := range want {
		if s := p.servers[addr]; s != nil {
			s.check.Store(check)
		} else if w := p.pendingAddrs[addr]; w != nil {
			w.check = check
		} else {
			p.open(ctx, addr, &pendingAddr{check: check})
		}
	}
	return ctx.Err()
}

// Due implements proxiers.Maintainer.
func (p *Proxier) Due() (due time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.pendingAddrs {
		if due.IsZero() || w.due.Before(due) {
			due = w.due
		}
	}
	return due
}

// Maintain tries again to listen on the addresses whose delay has expired.
func (p *Proxier) Maintain(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	for addr, w := range p.pendingAddrs {
		if !w.due.After(now) {
			p.open(ctx, addr, w)
		}
	}
	return nil
}

// Faults implements proxiers.Reporter. Faults returns a fault for each address and port that the Proxier cannot listen
// on, sorted by address.
func (p *Proxier) Faults() (out []fault.Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, addr := range slices.SortedFunc(maps.Keys(p.pendingAddrs), netip.AddrPort.Compare) {
		w := p.pendingAddrs[addr]
		out = append(out, proxiers.NewPortFault(fault.Problem, addr, service(w.check), w.err))
	}
	return out
}

func service(check *plan.HealthCheck) string { return check.Namespace + "/" + check.Name }

// Describe implements prometheus.Collector.
func (p *Proxier) Describe(out chan<- *prometheus.Desc) { p.failed.Describe(out) }

// Collect implements prometheus.Collector.
func (p *Proxier) Collect(out chan<- prometheus.Metric) { p.failed.Collect(out) }

// Close stops all servers.
func (p *Proxier) Close() error {
	for addr, s := range p.servers {
		s.close()
		delete(p.servers, addr)
	}
	return nil
}

func unchanged(c proxiers.Change) bool {
	return c.Prev != nil && slices.Equal(c.Prev.HealthChecks, c.Next.HealthChecks) &&
		slices.Equal(c.Prev.Node.NodePortAddrs, c.Next.Node.NodePortAddrs)
}

// wantedChecks returns the health checks to serve, by address and port. If two Services use the same port, the first
// Service in plan order takes precedence.
func wantedChecks(p *plan.Plan) map[netip.AddrPort]*plan.HealthCheck {
	want := map[netip.AddrPort]*plan.HealthCheck{}
	for _, check := range p.HealthChecks {
		for _, a := range p.Node.NodePortAddrs {
			if a.Is6() && a.IsLinkLocalUnicast() {
				continue // a link-local address needs an interface, and load balancers do not use link-local addresses
			}
			addr := netip.AddrPortFrom(a, check.Port)
			if want[addr] == nil {
				want[addr] = check
			}
		}
	}
	return want
}

// open starts a server on an address or, if the address cannot be bound, schedules another attempt.
func (p *Proxier) open(ctx context.Context, addr netip.AddrPort, w *pendingAddr) {
	logger := p.opts.Logger.With("address", addr.String(), "service", service(w.check))
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr.String())
	if err == nil {
		delete(p.pendingAddrs, addr)
		p.servers[addr] = p.serve(listener, w.check)
		if w.delay > 0 {
			logger.InfoContext(ctx, "health check port is open")
		}
		return
	}
	p.failed.Inc()
	if w.delay == 0 {
		logger.WarnContext(ctx, "cannot bind a health check port, retrying",
			"message_id", messageid.HealthCheckPortUnbound, "error", err)
	}
	w.err, w.delay = err, min(max(2*w.delay, minDelay), maxDelay)
	w.due = time.Now().Add(w.delay)
	p.pendingAddrs[addr] = w
}
