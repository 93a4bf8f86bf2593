// Package connect makes real connections from this host to the frontends of Services and to their endpoints, and says
// on which side a fault lies.
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

// Check is the name of the findings.
const Check = "connect"

// Options say what to connect to.
type Options struct {
	Plan *plan.Plan
	// Only is "namespace/name"; empty: all Services.
	Only string
	// UDP has UDP asked, too. An answer is owed by DNS alone: elsewhere only a refusal tells something.
	UDP bool
	// Unchecked is the setting with which a daemon leaves out what does not answer; empty: it does.
	Unchecked string
	// Trace looks for the rule that drops what is not answered. It needs root.
	Trace bool
}

const (
	// maxServices bounds the ServicePorts without Only, maxEndpoints and maxFrontends what is tried of each.
	maxServices  = 200
	maxEndpoints = 16
	maxFrontends = 8
	// atOnce is the number of connections at a time.
	atOnce = 32
	// timeBound is for all of them; traces come after it.
	timeBound = 3 * time.Minute
	// tries is how often a frontend with dead endpoints is tried: each connection is to another one.
	tries = 8
	// maxTraces bounds the traces, which come one after the other.
	maxTraces = 3
)

// Look connects. The connections are closed at once.
func Look(ctx context.Context, o Options) []fault.Fault {
	services, left := o.services()
	if o.Only != "" && len(services) == 0 {
		return []fault.Fault{fault.New(Check, fault.Problem, "edgeway services "+o.Only,
			"no TCP port of a Service %s has an endpoint for connections of this host (UDP is asked only with --udp)", o.Only)}
	}
	limited, cancel := context.WithTimeout(ctx, timeBound)
	defer cancel()
	var all sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for _, s := range services {
		all.Go(func() { s.try(limited, slots) })
	}
	all.Wait()
	var out []fault.Fault
	traces, late := maxTraces, 0
	for _, s := range services {
		if s.cut {
			late++
			continue
		}
		out = append(out, s.findings(ctx, &traces, o)...)
	}
	skipped := func(n int, why string) {
		if n > 0 {
			out = append(out, fault.New(Check, fault.Warning, "edgeway doctor --connect NAMESPACE/NAME",
				"%s of Services not tried: %s, unless a Service is named", text.Count(n, "port"), why))
		}
	}
	skipped(late, fmt.Sprintf("all have %s", timeBound))
	skipped(left, fmt.Sprintf("at most %d are", maxServices))
	return out
}

// service is a ServicePort that is tried.
type service struct {
	*plan.ServicePort
	frontends, endpoints []netip.AddrPort
	// sent are the outcomes by destination, under mu while connections run. cut says that some are not known: the time
	// was up.
	mu   sync.Mutex
	sent map[netip.AddrPort]outcome
	cut  bool
}

// services gives what is to be tried; left is the number of ServicePorts that are too many.
func (o Options) services() (out []*service, left int) {
	for _, svc := range o.Plan.Services {
		name := svc.Name.Namespace + "/" + svc.Name.Name
		asked := svc.Name.Protocol == plan.TCP || svc.Name.Protocol == plan.UDP && o.UDP
		if !asked || o.Only != "" && o.Only != name {
			continue
		}
		s := newService(o.Plan.Node, svc)
		switch {
		case len(s.endpoints) == 0 || len(s.frontends) == 0:
		case o.Only == "" && len(out) == maxServices:
			left++
		default:
			out = append(out, s)
		}
	}
	return out, left
}

// newService takes the frontends that forward connections of this host, and the endpoints that they lead to.
func newService(n *plan.Node, svc *plan.ServicePort) *service {
	s := &service{ServicePort: svc, sent: map[netip.AddrPort]outcome{}}
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

// add takes those addresses that are of the ServicePort's family, if the pool has an endpoint.
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

// try connects to the endpoints, and then to the frontends.
func (s *service) try(ctx context.Context, slots chan struct{}) {
	s.each(ctx, slots, s.endpoints, 1)
	n := 1
	if len(s.which(s.endpoints, false)) > 0 && len(s.which(s.endpoints, true)) > 0 {
		n = tries
	}
	s.each(ctx, slots, s.frontends, n)
}

// each tries destinations at once, each up to n times.
func (s *service) each(ctx context.Context, slots chan struct{}, list []netip.AddrPort, n int) {
	var all sync.WaitGroup
	for _, to := range list {
		all.Go(func() {
			got := failed
			for range n {
				slots <- struct{}{}
				got = dial(ctx, s.Name.Protocol, to, 0)
				<-slots
				if got = s.owed(got, to); got == answers || ctx.Err() != nil {
					break
				}
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			s.sent[to], s.cut = got, s.cut || ctx.Err() != nil
		})
	}
	all.Wait()
}

// owed takes silence for an answer where none is owed: over UDP, but for DNS.
func (s *service) owed(o outcome, to netip.AddrPort) outcome {
	if s.Name.Protocol == plan.UDP && o == silent && to.Port() != dnsPort {
		return answers
	}
	return o
}

// which gives those that answer, or the others.
func (s *service) which(list []netip.AddrPort, answering bool) (out []netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, to := range list {
		if (s.sent[to] == answers) == answering {
			out = append(out, to)
		}
	}
	return out
}
