package control

import (
	"net/netip"
	"slices"

	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// addCause appends the cause of the verdict to e.Reason and sets e.Fix.
func (s *Explainer) addCause(p *plan.Plan, e *Explanation, d plan.Decision, dst netip.Addr) {
	if d.Service == nil {
		if d.Verdict == plan.UnusedPortVerdict {
			e.Reason += ": " + portsAt(p, dst)
		}
		return
	}
	switch {
	case d.Verdict == plan.Reject:
		if why, absent := s.noEndpointFault(d.Service); absent {
			e.Reason += ": " + why.Message
			e.Fix = why.Fix
		}
	case d.Verdict == plan.Drop && d.Frontend.Routes[d.Origin].Verdict == plan.Drop:
		e.Fix = s.fixLocal()
	case d.Verdict == plan.Drop:
		e.Fix = "add the client's address to the Service's spec.loadBalancerSourceRanges"
	}
}

func (s *Explainer) noEndpointFault(sp *plan.ServicePort) (fault.Fault, bool) {
	svc := s.find(sp)
	if svc == nil {
		return fault.Fault{}, false
	}
	return planner.NoEndpointFault(svc, sp.Name, sp.Family)
}

func (s *Explainer) find(sp *plan.ServicePort) *tracker.Service {
	if s.State.Snapshot == nil {
		return nil
	}
	return s.State.Snapshot.Find(tracker.Name{Namespace: sp.Name.Namespace, Name: sp.Name.Name})
}

func (s *Explainer) fixLocal() string {
	if s.State.Snapshot != nil && s.State.Snapshot.Node != nil {
		return "run an endpoint on this host, or use an address whose traffic policy is Cluster"
	}
	return `node.local_policy = "cluster" uses the endpoints on other hosts: this host has no Node object, so no endpoint is on it`
}

func fixNoRoute(d plan.Decision) string {
	if d.Service == nil {
		return "add a route"
	}
	return "add a route, for example a default route through any gateway: the kernel looks up the route " +
		"before Edgeway translates the address. With routes.services = \"auto\", the daemon adds the route itself"
}

// objectFaults returns the faults of the Service that owns the destination, and of other Services that request the same
// destination.
func (s *Explainer) objectFaults(at netip.AddrPort, owner *plan.ServicePort) (out []fault.Fault) {
	if s.State.Snapshot == nil {
		return nil
	}
	concerned := map[source.Key]bool{}
	if owner != nil {
		concerned[source.Key{Kind: source.KindService, Namespace: owner.Name.Namespace, Name: owner.Name.Name}] = true
	}
	for _, svc := range s.State.Snapshot.Services {
		if requests(svc.Spec, at) {
			concerned[svc.Spec.Key()] = true
			for _, slice := range svc.Slices {
				concerned[slice.Key()] = true
			}
		}
	}
	for _, p := range s.State.Problems() {
		if concerned[p.Object] {
			out = append(out, p)
		}
	}
	return out
}

// requests reports whether a Service requests an address and port.
func requests(svc *source.Service, at netip.AddrPort) bool {
	listed := slices.Contains(svc.ClusterIPs, at.Addr()) || slices.Contains(svc.ExternalIPs, at.Addr()) ||
		slices.Contains(svc.LoadBalancerIPs, at.Addr())
	return slices.ContainsFunc(svc.Ports, func(p source.ServicePort) bool {
		return listed && p.Port == at.Port() || p.NodePort != 0 && p.NodePort == at.Port()
	})
}
