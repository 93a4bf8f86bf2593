package planner

import (
	"fmt"
	"math"
	"strconv"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// Bounds limit what a Service costs in the kernel, where each of these products is a number of elements or rules.
// An object of 50 kB can ask for a million. Zero: no bound.
type Bounds struct {
	// Endpoints is endpoints times ports. A Service with more has fewer endpoints at each port.
	Endpoints int
	// Frontends is addresses times ports, NodePorts included. A Service with more is left out.
	Frontends int
	// SourceRanges is load-balancer addresses times ports times source ranges. A Service with more is left out: the
	// address without its ranges would be open to all.
	SourceRanges int
}

// perPort gives how many endpoints each port may have, of a Service that has count at all of them.
func (b *Bounds) perPort(count, ports int, found *faults) int {
	if b.Endpoints == 0 || count <= b.Endpoints {
		return math.MaxInt
	}
	limit := b.Endpoints / ports
	found.addf("", "%s endpoints x ports, more than %s (proxy.max_service_endpoints): %s of each port are served, the others are left out",
		grouped(count), grouped(b.Endpoints), grouped(limit))
	return limit
}

// excess says in words which bound of its frontends the Service exceeds; empty: none. It multiplies, and
// builds nothing.
func (p *Planner) excess(s *source.Service, vips []vip) string {
	bounds := &p.opts.Bounds
	frontends, ranges := len(s.Ports)*len(vips), 0
	for i := range s.Ports {
		if s.Ports[i].NodePort != 0 {
			frontends++
		}
	}
	for _, family := range p.env.families {
		ofFamily := 0
		for _, r := range s.SourceRanges {
			if plan.FamilyOf(r.Addr()) == family {
				ofFamily++
			}
		}
		for _, v := range vips {
			if v.kind == plan.LoadBalancerIP && plan.FamilyOf(v.addr) == family {
				ranges += ofFamily * len(s.Ports)
			}
		}
	}
	switch {
	case bounds.Frontends > 0 && frontends > bounds.Frontends:
		return fmt.Sprintf("%s addresses x ports, more than %s (proxy.max_service_frontends)", grouped(frontends), grouped(bounds.Frontends))
	case bounds.SourceRanges > 0 && ranges > bounds.SourceRanges:
		return fmt.Sprintf("%s source ranges x load-balancer addresses x ports, more than %s (proxy.max_service_source_ranges)",
			grouped(ranges), grouped(bounds.SourceRanges))
	}
	return ""
}

// grouped gives 1000000 as "1,000,000".
func grouped(n int) string {
	s := strconv.Itoa(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// maxFaults bounds how many faults of one Service are kept; the last one then says how many more there are.
const maxFaults = 20

// faults collects the problems of one Service; nil: they are not wanted.
type faults struct {
	object source.Key
	list   []source.Problem
	more   int
}

// full reports whether further faults are only counted.
func (f *faults) full() bool { return len(f.list) >= maxFaults }

func (f *faults) addf(field, format string, args ...any) {
	switch {
	case f == nil:
	case f.full():
		f.more++
	default:
		f.list = append(f.list, source.Problem{Object: f.object, Field: field, Message: fmt.Sprintf(format, args...)})
	}
}

func (f *faults) done() []source.Problem {
	if f.more > 0 {
		f.list = append(f.list, source.Problem{Object: f.object, Message: strconv.Itoa(f.more) + " more faults"})
	}
	return f.list
}
