package planner

import (
	"cmp"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"

	"edgeway/daemon/source"
	"edgeway/daemon/text"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// BudgetID is the ID of the fault that lists the Services that need too much memory.
const BudgetID = "services-too-big"

// Budget holds the memory limit for all Services together and the memory per port, address and endpoint, in bytes. A 50
// kB object can request a million endpoints or addresses, because each one counts once per port.
type Budget struct {
	// Limit is the maximum memory for all Services. The Planner leaves out the largest Services until the others fit
	// within the limit. 0 means no limit.
	Limit int64
	// Port is the memory per ServicePort. Address is the memory per address or source range of a ServicePort. Endpoint
	// is the memory per endpoint of a ServicePort.
	Port, Address, Endpoint int64
}

// maxServiceEndpoints is the maximum size of a Service: the number of its endpoints multiplied by the number of its
// ports. A port or address counts as the number of endpoints that use the same amount of memory. With nftables, 20,000
// ports reach the limit. A full sync that writes 170,000 endpoints takes 10 s and delays all other changes. The limit
// is not in bytes, because an endpoint uses twenty times as much memory with iptables as with nftables.
const maxServiceEndpoints = 170_000

// maxServiceBytes returns maxServiceEndpoints converted to bytes.
func (b Budget) maxServiceBytes() int64 { return maxServiceEndpoints * b.Endpoint }

type budget struct {
	// limit is the memory limit for all Services together, and serviceLimit is the limit for each Service.
	limit, serviceLimit int64
	sizes               map[tracker.Name]size
	// largeServices holds the Services that exceed serviceLimit, and total is the size of all other Services.
	largeServices map[tracker.Name]struct{}
	total         int64
	// order lists the Services that are not in largeServices, in the order in which the Planner leaves them out. order
	// is nil until the total exceeds the limit for the first time.
	order []size
	// excludedServices holds the Services that the Planner leaves out. excludedServices depends only on sizes and
	// limit.
	excludedServices map[tracker.Name]struct{}
}

// size is the memory that a Service uses. spec determines the order of Services of about the same size.
type size struct {
	spec  *source.Service
	bytes int64
}

func newBudget(b Budget) budget {
	return budget{
		limit: b.Limit, serviceLimit: b.maxServiceBytes(), sizes: map[tracker.Name]size{},
		largeServices: map[tracker.Name]struct{}{},
	}
}

func (b *budget) excludes(name tracker.Name) bool {
	_, out := b.excludedServices[name]
	return out
}

// set records the size of a Service, or deletes the record if the size is 0.
func (b *budget) set(name tracker.Name, s size) {
	if old := b.sizes[name]; old.bytes > 0 && old.bytes <= b.serviceLimit {
		b.total -= old.bytes
		if i, found := slices.BinarySearchFunc(b.order, old, compareSizes); found {
			b.order = slices.Delete(b.order, i, i+1)
		}
	}
	delete(b.largeServices, name)
	delete(b.sizes, name)
	if s.bytes == 0 {
		return
	}
	b.sizes[name] = s
	if s.bytes > b.serviceLimit {
		b.largeServices[name] = struct{}{}
		return
	}
	b.total += s.bytes
	if b.order != nil {
		i, _ := slices.BinarySearchFunc(b.order, s, compareSizes)
		b.order = slices.Insert(b.order, i, s)
	}
}

// excess returns the Services that exceed serviceLimit, and as many of the largest other Services as the Planner must
// leave out to stay within the memory limit.
func (b *budget) excess() map[tracker.Name]struct{} {
	out := maps.Clone(b.largeServices)
	if b.limit == 0 || b.total <= b.limit {
		return out
	}
	if b.order == nil { // sort once, because later changes update the order
		for _, s := range b.sizes {
			if s.bytes <= b.serviceLimit {
				b.order = append(b.order, s)
			}
		}
		slices.SortFunc(b.order, compareSizes)
	}
	for i, total := 0, b.total; total > b.limit; i++ {
		out[nameOf(b.order[i].spec)] = struct{}{}
		total -= b.order[i].bytes
	}
	return out
}

// compareSizes orders Services for removal: the largest first and, among Services of about the same size, the youngest
// first. Two sizes are about the same if they have the same number of bits. A new Service is the youngest, so it does
// not displace a served Service of the same size. Services whose sizes change slightly do not displace each other
// repeatedly.
func compareSizes(x, y size) int {
	magnitude := func(s size) int { return bits.Len64(uint64(s.bytes)) }
	return cmp.Or(cmp.Compare(magnitude(y), magnitude(x)), comparePrecedence(y.spec, x.spec))
}

// difference returns the Services that are either in b.excludedServices or in out, but not in both.
func (b *budget) difference(out map[tracker.Name]struct{}) (names []tracker.Name) {
	for _, pair := range [][2]map[tracker.Name]struct{}{{b.excludedServices, out}, {out, b.excludedServices}} {
		for name := range pair[0] {
			if _, both := pair[1][name]; !both {
				names = append(names, name)
			}
		}
	}
	return names
}

func (p *Planner) resize(name tracker.Name) {
	if p.opts.Budget != (Budget{}) {
		p.budget.set(name, p.size(p.snap.Find(name)))
	}
}

// size computes the size of a Service without creating its ServicePorts. The Service may be nil.
func (p *Planner) size(svc *tracker.Service) (out size) {
	if svc == nil {
		return out
	}
	// If the Service causes a panic, planService leaves it out.
	_ = contain.Call(func() error {
		out = size{svc.Spec, p.opts.Budget.Port*int64(len(svc.Spec.Ports)) +
			p.opts.Budget.Address*p.countAddresses(svc.Spec)}
		for _, list := range p.index(svc) {
			for _, c := range list {
				out.bytes += p.opts.Budget.Endpoint * int64(len(c.slice.Endpoints))
			}
		}
		return nil
	})
	return out
}

// countAddresses returns the number of addresses plus the number of source ranges, summed over all ports of a Service.
func (p *Planner) countAddresses(s *source.Service) (n int64) {
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

// sizeRefusal returns the reason why the Service is too large, or "" if the Planner serves it.
func (p *Planner) sizeRefusal(name tracker.Name) string {
	const what = "the combinations of the Service's endpoints, addresses and ports need %s of memory, "
	switch bytes := p.budget.sizes[name].bytes; {
	case !p.budget.excludes(name):
		return ""
	case bytes > p.budget.serviceLimit:
		return fmt.Sprintf(what+"more than the limit of %s for one Service: Edgeway does not serve the "+
			"Service",
			megabytes(bytes), megabytes(p.budget.serviceLimit))
	default:
		return fmt.Sprintf(what+"but the memory limit allows only %s for all Services: Edgeway does not "+
			"serve the Service",
			megabytes(bytes), megabytes(p.budget.limit))
	}
}

func (p *Planner) budgetFaults() []fault.Fault {
	if len(p.budget.excludedServices) == 0 {
		return nil
	}
	names := slices.SortedFunc(maps.Keys(p.budget.excludedServices), tracker.Name.Compare)
	labels, fix := make([]string, len(names)), ""
	for i, n := range names {
		labels[i] = n.Namespace + "/" + n.Name
		if p.budget.sizes[n].bytes <= p.budget.serviceLimit {
			fix = "systemctl edit edgeway.service  # raise MemoryMax= in [Service]"
		}
	}
	return []fault.Fault{settingFault("MemoryMax=", fault.New(BudgetID, fault.Problem, fix,
		"Edgeway does not serve Services that need too much memory: %s", text.FirstOf(labels)))}
}

// megabytes formats a number of bytes in megabytes, such as "1.5 MB".
func megabytes(n int64) string { return strconv.FormatFloat(float64(n)/1e6, 'f', 1, 64) + " MB" }
