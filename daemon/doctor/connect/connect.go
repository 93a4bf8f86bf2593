// Package connect opens connections from this host to Service frontends and endpoints, and reports whether the host or
// an endpoint is at fault.
package connect

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// FaultID is the ID of the faults that this package reports.
const FaultID = "connect"

// Options selects the connections to open.
type Options struct {
	Plan *plan.Plan
	// Service is the "namespace/name" of a Service, or "" for all Services.
	Service string
	// UDP enables connections to UDP ports. The doctor requires a response only from DNS servers. On a UDP port other
	// than 53, only a refusal counts as a failure.
	UDP bool
	// ChecksSetting is the setting that enables endpoint checks, or "" if it is already in effect.
	ChecksSetting string
	// Trace enables traces, which find the rule that drops a connection. A trace requires root.
	Trace bool
}

const (
	// maxServices is the maximum number of ServicePorts to try if Options.Service is empty.
	maxServices = 200
	// maxEndpoints and maxFrontends are the maximum numbers of endpoints and frontends to try for each ServicePort.
	maxEndpoints = 16
	maxFrontends = 8
	// maxParallel is the maximum number of simultaneous connections.
	maxParallel = 32
	// timeBound is the maximum time for all connections together. Traces run afterwards.
	timeBound = 3 * time.Minute
	// maxTries is the maximum number of connections to a frontend that has live and dead endpoints. One connection is
	// not enough, because each connection may reach a different endpoint.
	maxTries = 8
	// maxTraces is the maximum number of traces. Traces run one after another.
	maxTraces = 3
)

// Run connects to the frontends and endpoints of Services and closes each connection immediately.
func Run(ctx context.Context, o Options) []fault.Fault {
	services, left := o.services()
	if o.Service != "" && len(services) == 0 {
		return []fault.Fault{fault.New(FaultID, fault.Problem, "edgeway services "+o.Service,
			"no TCP port of Service %s has an endpoint for connections from this host (--udp also tries UDP ports)",
			o.Service)}
	}
	limited, cancel := context.WithTimeout(ctx, timeBound)
	defer cancel()
	var all sync.WaitGroup
	slots := make(chan struct{}, maxParallel)
	for _, s := range services {
		all.Go(func() { s.try(limited, slots) })
	}
	all.Wait()
	var out []fault.Fault
	traces, late := maxTraces, 0
	for _, s := range services {
		if s.timedOut {
			late++
			continue
		}
		out = append(out, s.findings(ctx, &traces, o)...)
	}
	skipped := func(n int, why string) {
		if n > 0 {
			out = append(out, fault.New(FaultID, fault.Warning, "edgeway doctor --connect NAMESPACE/NAME",
				"%s of Services remained untested (%s); to test a port, name its Service",
				text.Count(n, "port"), why))
		}
	}
	skipped(late, fmt.Sprintf("the time limit for all ports is %s", timeBound))
	skipped(left, fmt.Sprintf("the command tests at most %d ports", maxServices))
	return out
}

type service struct {
	*plan.ServicePort
	frontends, endpoints []netip.AddrPort
	// mu protects outcomes and timedOut while connections are in progress.
	mu       sync.Mutex
	outcomes map[netip.AddrPort]outcome
	// timedOut reports whether time ran out before all outcomes were known.
	timedOut bool
}

// services returns the ServicePorts to try, and the number of ServicePorts beyond maxServices.
func (o Options) services() (out []*service, left int) {
	for _, svc := range o.Plan.Services {
		name := svc.Name.Namespace + "/" + svc.Name.Name
		asked := svc.Name.Protocol == plan.TCP || svc.Name.Protocol == plan.UDP && o.UDP
		if !asked || o.Service != "" && o.Service != name {
			continue
		}
		s := newService(o.Plan.Node, svc)
		switch {
		case len(s.endpoints) == 0 || len(s.frontends) == 0:
		case o.Service == "" && len(out) == maxServices:
			left++
		default:
			out = append(out, s)
		}
	}
	return out, left
}

// newService returns a service with the frontends that accept connections from this host, and the endpoints behind
// these frontends.
func newService(n *plan.Node, svc *plan.ServicePort) *service {
	s := &service{ServicePort: svc, outcomes: map[netip.AddrPort]outcome{}}
	for i := range svc.Frontends {
		f := &svc.Frontends[i]
		r := f.Routes[plan.FromHost]
		if r.Verdict == plan.Forward && f.AllowFrom == nil {
			addrs := []netip.Addr{f.Addr}
			if f.Kind == plan.NodePort {
				addrs = n.NodePortAddrs
			}
			s.add(addrs, f.Port, r.Pool)
		}
		if pool, ok := svc.LoopbackPool(f); ok && f.Kind == plan.NodePort {
			s.add(n.LoopbackAddrs, f.Port, pool)
		}
	}
	return s
}

// add adds the endpoints of a pool to the service. If the pool has endpoints, add also adds a frontend for each address
// in addrs that belongs to the ServicePort's family.
func (s *service) add(addrs []netip.Addr, port uint16, pool plan.Pool) {
	for _, a := range addrs {
		if plan.FamilyOf(a) == s.Family && len(s.frontends) < maxFrontends && len(s.Pools[pool]) > 0 {
			s.frontends = append(s.frontends, netip.AddrPortFrom(a, port))
		}
	}
	for _, ep := range s.Pools[pool] {
		if len(s.endpoints) < maxEndpoints && !slices.Contains(s.endpoints, ep.Addr) {
			s.endpoints = append(s.endpoints, ep.Addr)
		}
	}
}

// try connects to the endpoints first and then to the frontends.
func (s *service) try(ctx context.Context, slots chan struct{}) {
	s.connectAll(ctx, slots, s.endpoints, 1)
	n := 1
	if len(s.filter(s.endpoints, false)) > 0 && len(s.filter(s.endpoints, true)) > 0 {
		n = maxTries
	}
	s.connectAll(ctx, slots, s.frontends, n)
}

// connectAll connects to all destinations in parallel, and tries each destination up to n times.
func (s *service) connectAll(ctx context.Context, slots chan struct{}, list []netip.AddrPort, n int) {
	var all sync.WaitGroup
	for _, to := range list {
		all.Go(func() {
			got := failed
			for range n {
				slots <- struct{}{}
				got = dial(ctx, s.Name.Protocol, to, 0)
				<-slots
				if got = s.tolerateSilence(got, to); got == answers || ctx.Err() != nil {
					break
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.outcomes[to], s.timedOut = got, s.timedOut || ctx.Err() != nil
		})
	}
	all.Wait()
}

// tolerateSilence counts a missing UDP response as a success unless the destination is a DNS server. Servers for other
// protocols may ignore the test datagram.
func (s *service) tolerateSilence(o outcome, to netip.AddrPort) outcome {
	if s.Name.Protocol == plan.UDP && o == silent && to.Port() != dnsPort {
		return answers
	}
	return o
}

// filter returns the destinations that responded or, if answering is false, the destinations that did not respond.
func (s *service) filter(list []netip.AddrPort, answering bool) (out []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, to := range list {
		if (s.outcomes[to] == answers) == answering {
			out = append(out, to)
		}
	}
	return out
}
