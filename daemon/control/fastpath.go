package control

import (
	"net/netip"

	"edgeway/daemon/nodeinfo"
	"edgeway/proxiers/plan"
)

// FastPath returns text that states whether and why connections from an origin to a ServicePort use the fast path, or
// "" if there is nothing to report. hops holds the next hops to the client and to the endpoints.
type FastPath func(svc *plan.ServicePort, origin plan.Origin, hops []nodeinfo.NextHop) string

func (s *Explainer) fastPath(d plan.Decision, src netip.Addr) string {
	if d.Service == nil || d.Verdict != plan.Forward || src.IsLoopback() {
		return ""
	}
	var hops []nodeinfo.NextHop
	add := func(to netip.Addr) {
		if w, err := s.NextHop(to); err == nil {
			hops = append(hops, w)
		}
	}
	if d.Origin != plan.FromHost {
		add(src)
	}
	for _, e := range d.Endpoints {
		add(e.Addr.Addr())
	}
	return s.FastPath(d.Service, d.Origin, hops)
}
