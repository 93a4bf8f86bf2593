// Package planner implements the Kubernetes Service policy: it computes a plan from the sources' objects and the host's
// state. The proxiers apply the plan to the kernel.
//
// To the caller, Planner.Plan is a pure function. The previous plan affects only which Service keeps an address that
// several Services request. Internally, a Planner is incremental. If the previous plan is the Planner's own last plan
// and only some Services changed, the Planner replans only those Services and the Services that gain or lose an address
// because of the change.
//
// Read the files in this order: planner.go (which Services to plan again), options.go, environment.go (this host),
// requests.go and nodeports.go (the addresses and ports that a Service requests), ownership.go (which Service owns an
// address or port), budget.go (which Services are too large), service.go (the ServicePorts and their frontends),
// endpoints.go (the pools) and checks.go (endpoints that do not respond).
package planner

import (
	"net/netip"
	"reflect"
	"slices"

	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/daemon/tracker/sorted"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// Planner computes plans. A Planner is not safe for concurrent use.
type Planner struct {
	opts Options

	// snap and host are the arguments of the current call to Plan. prevSnap is the snapshot of the previous call.
	snap, prevSnap *tracker.Snapshot
	host           *nodeinfo.Host
	// plan is the result of the last call to Plan. During a call, plan is nil, so that the next call plans every
	// Service if the current one panics.
	plan *plan.Plan

	// Each call to Plan updates the following fields.
	env          *environment
	problems     []fault.Fault
	problemCache problemCache
	owners       ownership
	budget       budget
	health       healthPorts
	// outOfRangePorts maps each port outside Proxy.NodePortRange to the number of requests for it.
	outOfRangePorts map[uint16]int
	// portlessCounts maps each family in environment.portlessFamilies to the number of ServicePorts with a NodePort in
	// that family.
	portlessCounts map[plan.Family]int
	dead           *endpointcheck.DeadEndpoints
	checks         checkIndex
	rivals         int

	// The Planner reuses the following buffers for each Service.
	checked       []netip.AddrPort // see targets
	scratch       []endpoint       // see endpoints
	requestBuffer []portRequest    // see eachRequest
	served        []plan.Endpoint  // see servingEndpoints
	ports         backends         // see index
}

// New returns a Planner.
func New(opts Options) *Planner { return &Planner{opts: opts, rivals: maxRivals} }

// Plan returns the plan for a snapshot and a host. If host is nil, Plan assumes a host without addresses. The plan
// shares unchanged data with prev, which may be nil or come from another Planner. The faults describe everything that
// the Planner left out of the plan, but do not include the snapshot's own faults. Service faults come last and are
// sorted. If no fault has changed, Plan returns the same slice as the previous call.
func (p *Planner) Plan(snap *tracker.Snapshot, host *nodeinfo.Host, prev *plan.Plan) (*plan.Plan, []fault.Fault) {
	if host == nil {
		host = &nodeinfo.Host{}
	}
	if prev == nil {
		prev = &plan.Plan{}
	}
	next := &plan.Plan{Generation: prev.Generation + 1, Node: prev.Node}
	follows := prev == p.plan && (snap == p.snap || !snap.All && snap.Generation == p.snap.Generation+1)
	p.prevSnap, p.snap, p.plan = p.snap, snap, nil
	deadBefore := p.dead
	p.dead = p.opts.Checks.dead()
	if !follows || host != p.host || !sameEnvironment(snap, p.prevSnap) {
		env, node := p.opts.environment(snap, host)
		if prev.Node == nil || !reflect.DeepEqual(prev.Node, node) {
			next.Node = node
		}
		follows = follows && env.equal(p.env)
		p.env, p.host = env, host
	}
	if follows {
		p.update(prev, next, p.affectedServices(endpointcheck.Difference(deadBefore, p.dead)))
	} else {
		p.rebuild(prev, next)
	}
	p.plan, p.opts.SavedOwners = next, nil // only the first plan uses SavedOwners
	return next, p.problemCache.join(p.hostProblems(next.Node), p.problems)
}

func (p *Planner) rebuild(prev, next *plan.Plan) {
	p.owners, p.budget, p.checks = newOwnership(p.rivals), newBudget(p.opts.Budget), newCheckIndex()
	p.health, p.outOfRangePorts, p.portlessCounts, p.problems = newHealthPorts(),
		map[uint16]int{}, map[plan.Family]int{}, nil
	for _, svc := range p.snap.Services {
		p.countPorts(svc.Spec, 1)
		p.resize(svc.Name())
	}
	p.budget.excludedServices = p.budget.excess()
	for _, svc := range p.snap.Services {
		p.eachRequest(svc.Spec, p.owners.add)
	}
	p.restore(prev)
	p.owners.closePorts()
	next.Services = make([]*plan.ServicePort, 0, max(len(prev.Services), len(p.snap.Services)))
	for _, svc := range p.snap.Services {
		out := p.planService(svc)
		next.Services = append(next.Services, out.ports...)
		next.HealthChecks = append(next.HealthChecks, out.health...)
		p.problems = append(p.problems, out.problems...)
		p.checks.set(svc.Name(), out.checked)
	}
	p.countPortless(next.Services, 1)
	shareServices(prev.Services, next.Services)
	shareHealthChecks(prev.HealthChecks, next.HealthChecks)
}

func (p *Planner) update(prev, next *plan.Plan, names []tracker.Name) {
	results := make([]serviceResult, len(names))
	for i, name := range names {
		results[i] = p.planService(p.snap.Find(name))
		p.checks.set(name, results[i].checked)
	}
	ports := func(i int, old []*plan.ServicePort) []*plan.ServicePort {
		p.countPortless(old, -1)
		p.countPortless(results[i].ports, 1)
		shareServices(old, results[i].ports)
		return results[i].ports
	}
	checks := func(i int, old []*plan.HealthCheck) []*plan.HealthCheck {
		shareHealthChecks(old, results[i].health)
		return results[i].health
	}
	next.Services = sorted.Splice(prev.Services, names, compareServicePort, ports)
	next.HealthChecks = sorted.Splice(prev.HealthChecks, names, compareHealthCheck, checks)
	p.problems = sorted.Splice(p.problems, names, compareProblem, func(i int, _ []fault.Fault) []fault.Fault {
		return results[i].problems
	})
}

// affectedServices returns the sorted names of the Services to plan again: Services that changed, that gained or lost a
// port, or that have an endpoint that died or recovered.
func (p *Planner) affectedServices(endpoints []netip.AddrPort) []tracker.Name {
	names := p.checks.concerned(endpoints)
	if p.snap != p.prevSnap {
		names = slices.Concat(names, p.snap.Changed, p.updateOwnership())
	}
	return sortNames(names)
}

// updateOwnership updates the ownership of ports and returns the Services that are affected by changes to other
// Services.
func (p *Planner) updateOwnership() []tracker.Name {
	for _, name := range p.snap.Changed {
		p.resize(name)
	}
	out := p.budget.excess()
	others := sortNames(slices.Concat(p.healthPortConflicts(), p.budget.difference(out)))
	var old, fresh []*source.Service
	for _, name := range p.snap.Changed {
		was, is := p.specBefore(name), p.spec(name)
		if was == is {
			continue // only the Service's endpoints changed
		}
		if was != nil {
			old = append(old, was)
		}
		if is != nil {
			fresh = append(fresh, is)
		}
	}
	for _, name := range others {
		if s := p.spec(name); s != nil && s == p.specBefore(name) {
			old, fresh = append(old, s), append(fresh, s)
		}
	}
	p.replaceRequests(old, fresh, out)
	return slices.Concat(others, p.recount(p.owners.uncertainPorts()), p.owners.closePorts())
}

// replaceRequests removes the requests of the Services in old, updates the health check ports and the budget, and adds
// the requests of the Services in fresh. The order matters because the requests depend on the health check ports and on
// the budget.
func (p *Planner) replaceRequests(old, fresh []*source.Service, out map[tracker.Name]struct{}) {
	for _, s := range old {
		p.eachRequest(s, func(c exclusivePort, _ request) { p.owners.remove(c, s) })
	}
	p.budget.excludedServices = out
	for _, s := range old {
		p.countPorts(s, -1)
	}
	for _, s := range fresh {
		p.countPorts(s, 1)
	}
	for _, s := range fresh {
		p.eachRequest(s, p.owners.add)
	}
}

func (p *Planner) hostProblems(node *plan.Node) []fault.Fault {
	return slices.Concat(p.env.problems, p.nodePortAddrFaults(node), p.nodePortRangeFaults(node), p.budgetFaults(),
		p.unknownLongLived())
}

// settingFault returns f as a fault in the setting named by key. The fault affects no connection that the rules
// forward, because Edgeway creates no rules for the objects that the setting excludes.
func settingFault(key string, f fault.Fault) fault.Fault {
	return f.WithName(key).WithScope(fault.Scope{Clients: fault.NoClients})
}

func (p *Planner) unknownLongLived() (out []fault.Fault) {
	if !p.opts.FastPath.Enabled {
		return nil
	}
	for _, name := range p.opts.FastPath.Services {
		if p.snap.Find(tracker.Name(name)) == nil {
			out = append(out, settingFault("fastpath.services", fault.New(source.ObjectFaultID, fault.Warning, "",
				"there is no Service %s", name)))
		}
	}
	return out
}

// ContestedPorts returns the ports that several Services request, and the owner of each port. After a restart,
// Options.SavedOwners must return the result of the previous process's last call to ContestedPorts. The caller must not
// modify the slice.
func (p *Planner) ContestedPorts() []source.Holding { return p.owners.contestedPorts() }

// CheckChanges returns the changes to the set of checked endpoints since the last call. CheckChanges requires
// Options.Checks.
func (p *Planner) CheckChanges() endpointcheck.Targets { return p.checks.take() }

func (p *Planner) spec(name tracker.Name) *source.Service { return specOf(p.snap, name) }

func (p *Planner) specBefore(name tracker.Name) *source.Service { return specOf(p.prevSnap, name) }

func specOf(snap *tracker.Snapshot, name tracker.Name) *source.Service {
	if svc := snap.Find(name); svc != nil {
		return svc.Spec
	}
	return nil
}

func nameOf(s *source.Service) tracker.Name {
	return tracker.Name{Namespace: s.Namespace, Name: s.Name}
}

func sortNames(names []tracker.Name) []tracker.Name {
	slices.SortFunc(names, tracker.Name.Compare)
	return slices.Compact(names)
}

// problemCache caches the list of all problems, because most plans change no problem and the list can be long.
type problemCache struct {
	host, services, all []fault.Fault
}

// join returns the host's problems, followed by the Services' problems. The caller must not modify the arguments or the
// result.
func (j *problemCache) join(host, services []fault.Fault) []fault.Fault {
	if len(host) == 0 {
		*j = problemCache{}
		return services
	}
	if !sameList(services, j.services) || !slices.Equal(host, j.host) {
		*j = problemCache{host, services, slices.Concat(host, services)}
	}
	return j.all
}

// sameList reports whether a and b are the same slice.
func sameList(a, b []fault.Fault) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// shareServices replaces ServicePorts in next with equal ServicePorts in prev. prev and next must be in plan order.
func shareServices(prev, next []*plan.ServicePort) {
	share(prev, next, (*plan.ServicePort).Compare, func(a, b *plan.ServicePort) bool { return a.Digest == b.Digest })
}

func shareHealthChecks(prev, next []*plan.HealthCheck) {
	share(prev, next, (*plan.HealthCheck).Compare, func(a, b *plan.HealthCheck) bool { return *a == *b })
}

func share[T any](prev, next []*T, compare func(a, b *T) int, equal func(a, b *T) bool) {
	for i := range next {
		for len(prev) > 0 && compare(prev[0], next[i]) < 0 {
			prev = prev[1:]
		}
		if len(prev) > 0 && compare(prev[0], next[i]) == 0 && equal(prev[0], next[i]) {
			next[i] = prev[0]
		}
	}
}

func compareServicePort(s *plan.ServicePort, n tracker.Name) int {
	return tracker.Name{Namespace: s.Name.Namespace, Name: s.Name.Name}.Compare(n)
}

func compareHealthCheck(h *plan.HealthCheck, n tracker.Name) int {
	return tracker.Name{Namespace: h.Namespace, Name: h.Name}.Compare(n)
}

func compareProblem(p fault.Fault, n tracker.Name) int {
	return tracker.Name{Namespace: p.Object.Namespace, Name: p.Object.Name}.Compare(n)
}
