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

// Budget is the memory that all Services together may take, and what their parts take, in bytes. An object of 50 kB
// can ask for a million endpoints of ports, or addresses of ports.
type Budget struct {
	// Limit is for all Services: the biggest beyond it are left out. 0 means that there is no limit.
	Limit int64
	// Port is what a ServicePort takes, Address an address of a ServicePort or a source range of such an address, and
	// Endpoint an endpoint of a ServicePort.
	Port, Address, Endpoint int64
}

// maxService is the size of the largest Service that is served, if Budget has sizes at all: 20,000 ports, or 170,000
// endpoints of nftables. A full sync that has to write so many takes 10 s, and no other change is made meanwhile.
const maxService = 50 << 20

// budget is the sizes of all Services, and the Services that are left out because of it.
type budget struct {
	limit int64
	sizes map[tracker.Name]size
	// large are the Services above maxService, and total is the size of the others.
	large map[tracker.Name]struct{}
	total int64
	// out are the Services that are left out. It depends on sizes and limit alone.
	out map[tracker.Name]struct{}
}

// size is what a Service takes. spec decides between Services of one size.
type size struct {
	spec  *source.Service
	bytes int64
}

func newBudget(limit int64) budget {
	return budget{limit: limit, sizes: map[tracker.Name]size{}, large: map[tracker.Name]struct{}{}}
}

func (b *budget) leavesOut(name tracker.Name) bool {
	_, out := b.out[name]
	return out
}

// set notes the size of a Service, or forgets a Service of no size.
func (b *budget) set(name tracker.Name, s size) {
	if old := b.sizes[name]; old.bytes <= maxService {
		b.total -= old.bytes
	}
	delete(b.large, name)
	if s.bytes > maxService {
		b.large[name] = struct{}{}
	} else {
		b.total += s.bytes
	}
	if s.bytes == 0 {
		delete(b.sizes, name)
	} else {
		b.sizes[name] = s
	}
}

// excess returns the Services that are too large, and the largest others without which the rest is within the limit. Of
// equal ones the youngest come first, so that a new Service does not displace one that is served.
func (b *budget) excess() map[tracker.Name]struct{} {
	out := maps.Clone(b.large)
	if b.limit == 0 || b.total <= b.limit {
		return out
	}
	rest := slices.Collect(maps.Values(b.sizes))
	slices.SortFunc(rest, func(x, y size) int {
		return cmp.Or(cmp.Compare(y.bytes, x.bytes), comparePrecedence(y.spec, x.spec))
	})
	for total := b.total; total > b.limit; rest = rest[1:] {
		if rest[0].bytes <= maxService {
			out[nameOf(rest[0].spec)] = struct{}{}
			total -= rest[0].bytes
		}
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

// resize notes the size of a Service.
func (p *Planner) resize(name tracker.Name) {
	if p.opts.Budget != (Budget{}) {
		p.budget.set(name, p.size(p.snap.Find(name)))
	}
}

// size returns the size of a Service, which may be nil. It multiplies, and builds nothing.
func (p *Planner) size(svc *tracker.Service) (out size) {
	if svc == nil {
		return out
	}
	// A panic is the Service's: service refuses it.
	_ = contain.Call(func() error {
		out = size{svc.Spec, p.opts.Budget.Port*int64(len(svc.Spec.Ports)) + p.opts.Budget.Address*p.addresses(svc.Spec)}
		for _, list := range p.index(svc) {
			for _, c := range list {
				out.bytes += p.opts.Budget.Endpoint * int64(len(c.slice.Endpoints))
			}
		}
		return nil
	})
	return out
}

// addresses returns the number of addresses of all ports of a Service, and of the source ranges of these addresses.
func (p *Planner) addresses(s *source.Service) (n int64) {
	ranges := [...]int64{plan.IPv4: 0, plan.IPv6: 0}
	for _, r := range s.SourceRanges {
		ranges[plan.FamilyOf(r.Addr())]++
	}
	for _, v := range p.vips(s, nil) {
		n++
		if v.kind == plan.LoadBalancerIP {
			n += ranges[plan.FamilyOf(v.addr)]
		}
	}
	n *= int64(len(s.Ports))
	for i := range s.Ports {
		if s.Ports[i].NodePort != 0 {
			n++
		}
	}
	return n
}

// tooBig returns the reason why a Service is left out because of its size, and "" if it is not.
func (p *Planner) tooBig(name tracker.Name) string {
	const what = "its endpoints x ports and addresses x ports take %s of memory, "
	switch bytes := p.budget.sizes[name].bytes; {
	case !p.budget.leavesOut(name):
		return ""
	case bytes > maxService:
		return fmt.Sprintf(what+"more than the %s of the largest Service that is served: it is left out",
			megabytes(bytes), megabytes(maxService))
	default:
		return fmt.Sprintf(what+"and the memory limit has %s for all Services: it is left out",
			megabytes(bytes), megabytes(p.budget.limit))
	}
}

// leftOut returns the problem of a host that leaves out Services because of their size.
func (p *Planner) leftOut() []source.Problem {
	if len(p.budget.out) == 0 {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(p.budget.out), tracker.Name.Compare)
	labels, fix := make([]string, len(names)), ""
	for i, n := range names {
		labels[i] = n.Namespace + "/" + n.Name
		if p.budget.sizes[n].bytes <= maxService {
			fix = "systemctl edit edgeway.service  # a higher MemoryMax= in the section [Service]"
		}
	}
	return []source.Problem{{
		ID: BudgetID, Object: source.Key{Kind: source.KindSetting, Name: "MemoryMax="},
		Message: "Services are left out because they take too much memory: " + firstOf(labels), Fix: fix,
	}}
}

// megabytes returns "1.5 MB".
func megabytes(n int64) string { return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " MB" }

// maxFaults bounds how many faults of one Service are kept; the last one then says how many more there are.
const maxFaults = 20

// faults collects the problems of one Service. Its methods do nothing if it is nil.
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
