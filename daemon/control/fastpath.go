package control

import (
	"net/netip"

	"edgeway/daemon/nodeinfo"
	"edgeway/proxiers/plan"
)

// FastPath reports whether connections of an origin to a ServicePort take the fast path, and why. FastPath returns ""
// if there is nothing to report. ways holds the routes to both ends of the connection.
type FastPath func(svc *plan.ServicePort, origin plan.Origin, ways []nodeinfo.Way) string

// fastPath reports whether the connection takes the fast path, or returns "" if the fast path does not apply.
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
