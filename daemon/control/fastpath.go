package control

import (
	"net/netip"

	"edgeway/daemon/nodeinfo"
	"edgeway/proxiers/plan"
)

// FastPath says whether connections of an origin to a ServicePort leave the rules, and why, by the ways to both ends;
// empty: there is nothing to say.
type FastPath func(svc *plan.ServicePort, origin plan.Origin, ways []nodeinfo.Way) string

// fastPath says whether the connection leaves the rules; empty: nobody asks.
func (s *Subject) fastPath(d plan.Decision, src netip.Addr) string {
	if s.FastPath == nil || d.Service == nil || d.Verdict != plan.Forward || src.IsLoopback() {
		return ""
	}
	var ways []nodeinfo.Way
	add := func(to netip.Addr) {
		if w, err := s.Way(to); err == nil {
			ways = append(ways, w)
		}
	}
	if d.Origin != plan.FromHost {
		add(src)
	}
	for _, e := range d.Endpoints {
		add(e.Addr.Addr())
	}
	return s.FastPath(d.Service, d.Origin, ways)
}
