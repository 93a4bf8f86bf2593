package planner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/plan"
)

// BudgetID is the ID of the problem of a host that has too little memory for all Services.
const BudgetID = "services-too-big"

// perPort is the number of elements that a ServicePort costs beside its own: 20,000 ports with one address and one
// endpoint each take the daemon 2.7 kB a port, and a large number of endpoints of a few ports 190 bytes an endpoint.
const perPort = 4

// budget is the size of all Services, in elements, and the Services that are left out because of it. An element is an
// endpoint of a port, an address of a port or a source range of such an address: a rule, or an entry of a set or a map.
// An object of 50 kB can ask for a million.
type budget struct {
	limit int64 // 0: there is none, and nothing is counted
	sizes map[tracker.Name]int64
	total int64
	// out are the Services that are left out. It depends on sizes and limit alone.
	out map[tracker.Name]struct{}
}

func newBudget(limit int64) budget { return budget{limit: limit, sizes: map[tracker.Name]int64{}} }

func (b *budget) leavesOut(name tracker.Name) bool {
	_, out := b.out[name]
	return out
}

// set notes the size of a Service, or forgets a Service of size 0.
func (b *budget) set(name tracker.Name, size int64) {
	b.total += size - b.sizes[name]
	if size == 0 {
		delete(b.sizes, name)
	} else {
		b.sizes[name] = size
	}
}

// excess returns the biggest Services, without which the others are within the limit.
func (b *budget) excess() map[tracker.Name]struct{} {
	if b.total <= b.limit {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(b.sizes), func(x, y tracker.Name) int {
		return cmp.Or(cmp.Compare(b.sizes[y], b.sizes[x]), x.Compare(y))
	})
	out := map[tracker.Name]struct{}{}
	for total := b.total; total > b.limit; names = names[1:] {
		out[names[0]] = struct{}{}
		total -= b.sizes[names[0]]
	}
	return out
}

// moves returns the Services that are left out now or with out, but not both.
func (b *budget) moves(out map[tracker.Name]struct{}) (names []tracker.Name) {
	for _, pair := range [][2]map[tracker.Name]struct{}{{b.out, out}, {out, b.out}} {
		for name := range pair[0] {
			if _, both := pair[1][name]; !both {
				names = append(names, name)
			}
		}
	}
	return names
}

// resize notes the sizes of Services.
func (p *Planner) resize(snap *tracker.Snapshot, names []tracker.Name) {
	if p.budget.limit == 0 {
		return
	}
	for _, name := range names {
		p.budget.set(name, p.size(snap.Find(name)))
	}
}

// size returns the number of elements of a Service, which may be nil. It multiplies, and builds nothing.
func (p *Planner) size(svc *tracker.Service) (n int64) {
	if svc == nil {
		return 0
	}
	// A panic is the Service's: service refuses it.
	_ = contain.Call(func() error {
		vips := p.vips(svc.Spec, nil)
		perAddress := [...]int64{plan.IPv4: 1, plan.IPv6: 1}
		for _, r := range svc.Spec.SourceRanges {
			perAddress[plan.FamilyOf(r.Addr())]++
		}
		each := int64(perPort)
		for _, v := range vips {
			if v.kind == plan.LoadBalancerIP {
				each += perAddress[plan.FamilyOf(v.addr)]
			} else {
				each++
			}
		}
		n = each * int64(len(svc.Spec.Ports))
		for i := range svc.Spec.Ports {
			if svc.Spec.Ports[i].NodePort != 0 {
				n++
			}
		}
		for _, list := range p.index(svc) {
			for _, c := range list {
				n += int64(len(c.slice.Endpoints))
			}
		}
		return nil
	})
	return n
}

// tooBig returns the problem of a host that leaves out Services because of their size.
func (p *Planner) tooBig() []source.Problem {
	if len(p.budget.out) == 0 {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(p.budget.out), tracker.Name.Compare)
	labels := make([]string, len(names))
	for i, n := range names {
		labels[i] = n.Namespace + "/" + n.Name
	}
	return []source.Problem{{
		ID: BudgetID, Object: source.Key{Kind: source.KindSetting, Name: "MemoryMax="},
		Message: fmt.Sprintf("the memory limit allows for %s elements of Services (endpoints x ports, addresses x ports): the biggest Services are left out: %s",
			grouped(p.budget.limit), firstOf(labels)),
		Fix: "systemctl edit edgeway.service  # a higher MemoryMax= in the section [Service]",
	}}
}

// grouped returns 1000000 as "1,000,000".
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
