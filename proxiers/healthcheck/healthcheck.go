// Package healthcheck serves the healthCheckNodePorts of LoadBalancer Services whose external traffic
// policy is Local: over HTTP, a load balancer asks each host whether it has an endpoint to send to.
//
// The answer is byte for byte kube-proxy's (pkg/proxy/healthcheck of v1.36), since load balancers
// are configured to read it. Unlike kube-proxy's, the listeners follow the plan: one for each address
// that accepts NodePorts, opened and closed as addresses come and go. Never a wildcard: what does
// not accept the Service's NodePort must not say that it is healthy.
package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// Options are what the follower is made with. The functions are never nil.
type Options struct {
	Logger *slog.Logger
	// Healthy reports whether the daemon keeps this host's Services in order. It is called for each
	// request, from any goroutine.
	Healthy func() bool
	// BindFailed is called each time that a listener could not be opened.
	BindFailed func()
}

// New gives the follower. It listens from the first Apply to Close.
func New(opts Options) proxiers.Proxier {
	return &follower{opts: opts, servers: map[netip.AddrPort]*server{}, refused: map[netip.AddrPort]bool{}}
}

type follower struct {
	opts    Options
	servers map[netip.AddrPort]*server
	// refused are the addresses whose failure has been logged.
	refused map[netip.AddrPort]bool
}

// Apply opens, closes and updates servers. What is right already is left alone. An address that
// cannot be bound (a port in use, an IPv6 address still being checked for duplicates) is an error
// after all others were done, so that the caller tries again.
func (f *follower) Apply(ctx context.Context, change proxiers.Change) error {
	if unchanged(change) {
		return nil
	}
	want := f.wanted(change.Next)
	for addr, s := range f.servers {
		if want[addr] == nil {
			s.close()
			delete(f.servers, addr)
		}
	}
	for addr := range f.refused {
		if want[addr] == nil {
			delete(f.refused, addr)
		}
	}
	var errs []error
	for addr, check := range want {
		if s := f.servers[addr]; s != nil {
			s.check.Store(check)
		} else if err := f.open(ctx, addr, check); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// Close stops all servers.
func (f *follower) Close() error {
	for addr, s := range f.servers {
		s.close()
		delete(f.servers, addr)
	}
	return nil
}

func unchanged(c proxiers.Change) bool {
	return c.Prev != nil && slices.Equal(c.Prev.HealthChecks, c.Next.HealthChecks) &&
		slices.Equal(c.Prev.Node.NodePortAddrs, c.Next.Node.NodePortAddrs)
}

// wanted gives what to serve, by address and port. Of two Services with one port the first in the
// order of the plan has it.
func (f *follower) wanted(p *plan.Plan) map[netip.AddrPort]*plan.HealthCheck {
	want := map[netip.AddrPort]*plan.HealthCheck{}
	for _, check := range p.HealthChecks {
		for _, a := range p.Node.NodePortAddrs {
			if a.Is6() && a.IsLinkLocalUnicast() {
				continue // means nothing without an interface, and no load balancer asks there
			}
			addr := netip.AddrPortFrom(a, check.Port)
			if want[addr] == nil {
				want[addr] = check
			}
		}
	}
	return want
}

func (f *follower) open(ctx context.Context, addr netip.AddrPort, check *plan.HealthCheck) error {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", addr.String())
	if err != nil {
		f.opts.BindFailed()
		err = fmt.Errorf("health check port of %s/%s: %w", check.Namespace, check.Name, err)
		if !f.refused[addr] {
			f.refused[addr] = true
			f.opts.Logger.WarnContext(ctx, "health check port can not be opened; it is tried again", "error", err)
		}
		return err
	}
	delete(f.refused, addr)
	f.servers[addr] = serve(listener, check, f.opts)
	return nil
}
