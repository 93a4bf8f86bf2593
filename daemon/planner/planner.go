// Package planner decides Kubernetes Service policy: of what the sources say and what the host is like
// it makes the plan that the proxiers translate.
//
// From outside a Planner is a pure function: the same arguments give the same plan, whatever was
// planned before. Inside it is incremental: when the plan before is its own last one and only some
// Services changed, it plans those alone, and those that gain or lose an address by it.
package planner

import (
	"net/netip"
	"slices"

	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/daemon/tracker/sorted"
	"edgeway/proxiers/plan"
)

// Planner makes plans. It is for one goroutine.
type Planner struct {
	opts Options

	// What the last call was given and gave.
	snap     *tracker.Snapshot
	host     *nodeinfo.Host
	made     *plan.Plan
	problems []source.Problem // of Services
	joined   joined
	// What follows from that, kept up to date.
	env    *environment
	around []source.Problem // those of no Service
	owners ownership
	// rivals is the number of rivals that owners remembers for each claim.
	rivals int
	health healthPorts
	budget budget
	// outside counts the Services with each port that is not in Options.NodePortRange.
	outside map[uint16]int
	// wanting is how many ServicePorts have a NodePort, for the families of environment.portless.
	wanting map[plan.Family]int
	// dead are the endpoints that do not answer, and checks has whose they are.
	dead   *endpointcheck.Dead
	checks checkIndex

	checked []netip.AddrPort         // of the Service that is being planned, see targets
	scratch []endpoint               // see endpoints
	claimed []claimed                // see claims
	served  []plan.Endpoint          // see serving
	ports   map[portKey][]candidates // see index
}

// New returns a Planner.
func New(opts Options) *Planner { return &Planner{opts: opts, rivals: maxRivals} }

// Plan makes the plan for a snapshot and a host; a nil host has no addresses. It shares with prev,
// which may be nil and of another Planner, what did not change. The problems are what the planner left
// out, those of Services last and sorted; those of the snapshot are not among them. The list is the same one as before
// while it does not change.
func (p *Planner) Plan(snap *tracker.Snapshot, host *nodeinfo.Host, prev *plan.Plan) (*plan.Plan, []source.Problem) {
	if host == nil {
		host = &nodeinfo.Host{}
	}
	if prev == nil {
		prev = &plan.Plan{}
	}
	died := p.dead
	p.dead = p.opts.Checks.dead()
	next := &plan.Plan{Generation: prev.Generation + 1}
	follows := prev == p.made && p.follows(snap)
	if follows && host == p.host && sameSurroundings(snap, p.snap) {
		next.Node = prev.Node
	} else {
		var env *environment
		env, next.Node, p.around = p.opts.surroundings(snap, host)
		if prev.Node != nil && equalNode(prev.Node, next.Node) {
			next.Node = prev.Node
		}
		follows = follows && env.equal(p.env)
		p.env = env
	}
	if follows {
		p.update(snap, prev, next, p.concerned(snap, died))
	} else {
		p.rebuild(snap, prev, next)
	}
	p.snap, p.host, p.made = snap, host, next
	return next, p.joined.join(slices.Concat(p.around, p.unserved(next.Node), p.outOfRange(next.Node), p.tooBig(), p.strangers(snap)), p.problems)
}

// follows reports whether snap.Changed is all that is between the last snapshot and this one.
func (p *Planner) follows(snap *tracker.Snapshot) bool {
	return snap == p.snap || !snap.All && snap.Generation == p.snap.Generation+1
}

// rebuild plans all Services.
func (p *Planner) rebuild(snap *tracker.Snapshot, prev, next *plan.Plan) {
	p.owners, p.problems, p.wanting, p.checks = newOwnership(p.rivals), nil, map[plan.Family]int{}, newCheckIndex()
	p.health, p.outside, p.budget = newHealthPorts(), map[uint16]int{}, newBudget(p.opts.Elements)
	for _, svc := range snap.Services {
		p.resize(snap, []tracker.Name{svc.Name()})
	}
	p.budget.out = p.budget.excess()
	for _, svc := range snap.Services {
		p.enter(svc.Spec, 1)
	}
	for _, svc := range snap.Services {
		p.claims(svc.Spec, p.owners.add)
	}
	p.restore(snap, prev)
	p.owners.settle()
	next.Services = make([]*plan.ServicePort, 0, max(len(prev.Services), len(snap.Services)))
	for _, svc := range snap.Services {
		out := p.service(svc)
		next.Services = append(next.Services, out.ports...)
		next.HealthChecks = append(next.HealthChecks, out.health...)
		p.problems = append(p.problems, out.problems...)
		p.checks.set(svc.Name(), out.checked)
	}
	p.countPortless(next.Services, 1)
	shareServices(prev.Services, next.Services)
	shareHealthChecks(prev.HealthChecks, next.HealthChecks)
}

// concerned returns the Services to plan anew, sorted: those that changed, that gain or lose a claim to others, or that
// have an endpoint that died or came back.
func (p *Planner) concerned(snap *tracker.Snapshot, died *endpointcheck.Dead) []tracker.Name {
	var names []tracker.Name
	if snap != p.snap {
		names = append(p.transfer(snap), snap.Changed...)
	}
	names = append(names, p.checks.concerned(endpointcheck.Difference(died, p.dead))...)
	slices.SortFunc(names, tracker.Name.Compare)
	return slices.Compact(names)
}

// update plans the Services of these names.
func (p *Planner) update(snap *tracker.Snapshot, prev, next *plan.Plan, names []tracker.Name) {
	results := make([]planned, len(names))
	for i, name := range names {
		results[i] = p.service(snap.Find(name))
		p.checks.set(name, results[i].checked)
	}
	next.Services = sorted.Splice(prev.Services, names, compareServicePort, func(i int, old []*plan.ServicePort) []*plan.ServicePort {
		p.countPortless(old, -1)
		p.countPortless(results[i].ports, 1)
		shareServices(old, results[i].ports)
		return results[i].ports
	})
	next.HealthChecks = sorted.Splice(prev.HealthChecks, names, compareHealthCheck, func(i int, old []*plan.HealthCheck) []*plan.HealthCheck {
		shareHealthChecks(old, results[i].health)
		return results[i].health
	})
	p.problems = sorted.Splice(p.problems, names, compareProblem, func(i int, _ []source.Problem) []source.Problem {
		return results[i].problems
	})
}

// transfer brings the ownership up to date. It returns the Services that another Service's change concerns.
func (p *Planner) transfer(snap *tracker.Snapshot) []tracker.Name {
	p.resize(snap, snap.Changed)
	out := p.budget.excess()
	others := slices.Concat(p.besides(snap), p.budget.moves(out))
	slices.SortFunc(others, tracker.Name.Compare)
	others = slices.Compact(others)
	var before, after []*source.Service
	for _, name := range snap.Changed {
		old, fresh := specOf(p.snap, name), specOf(snap, name)
		if old == fresh {
			continue // only its endpoints changed
		}
		if old != nil {
			before = append(before, old)
		}
		if fresh != nil {
			after = append(after, fresh)
		}
	}
	for _, name := range others {
		if s := specOf(snap, name); s != nil && s == specOf(p.snap, name) {
			before, after = append(before, s), append(after, s)
		}
	}
	p.exchange(before, after, out)
	return slices.Concat(others, p.recount(snap, p.owners.unsure()), p.owners.settle())
}

// exchange takes the bids of some Services away, and adds those of others. What a Service bids for depends on the health
// check ports and on the Services that are left out because of their size, which change in between.
func (p *Planner) exchange(before, after []*source.Service, out map[tracker.Name]struct{}) {
	for _, s := range before {
		p.claims(s, func(c claim, _ bid) { p.owners.remove(c, s) })
	}
	p.budget.out = out
	for _, s := range before {
		p.enter(s, -1)
	}
	for _, s := range after {
		p.enter(s, 1)
	}
	for _, s := range after {
		p.claims(s, p.owners.add)
	}
}

// recount collects the bids for some claims from all Services again, and returns the Services that bid.
func (p *Planner) recount(snap *tracker.Snapshot, claims map[claim]struct{}) (bidders []tracker.Name) {
	if len(claims) == 0 {
		return nil
	}
	for c := range claims {
		p.owners.forget(c)
	}
	for _, svc := range snap.Services {
		bids := false
		p.claims(svc.Spec, func(c claim, b bid) {
			if _, is := claims[c]; is {
				p.owners.add(c, b)
				bids = true
			}
		})
		if bids {
			bidders = append(bidders, svc.Name())
		}
	}
	return bidders
}

// restore lets the Services keep the claims that they owned when the last process ended, and those that the previous
// plan gave them. After a reload there are both: the previous plan is what the kernel accepted, and it lacks what the
// kernel refused.
func (p *Planner) restore(snap *tracker.Snapshot, prev *plan.Plan) {
	if len(p.owners.rivals) == 0 {
		return
	}
	saved, planned := holders{}, holders{}
	if p.made == nil && p.opts.Held != nil {
		for _, h := range p.opts.Held() {
			saved.note(&p.owners, claim{h.Addr, h.Protocol, h.Port}, tracker.Name{Namespace: h.Namespace, Name: h.Name})
		}
	}
	for _, sp := range prev.Services {
		name := tracker.Name{Namespace: sp.Name.Namespace, Name: sp.Name.Name}
		for i := range sp.Frontends {
			f := &sp.Frontends[i]
			planned.note(&p.owners, claim{f.Addr, sp.Name.Protocol, f.Port}, name)
		}
	}
	for _, h := range prev.HealthChecks {
		planned.note(&p.owners, claim{protocol: plan.TCP, port: h.Port}, tracker.Name{Namespace: h.Namespace, Name: h.Name})
	}
	p.give(snap, saved)
	p.give(snap, planned)
}

// holders are the contested claims that each Service had.
type holders map[tracker.Name]map[claim]struct{}

func (h holders) note(o *ownership, c claim, name tracker.Name) {
	if o.rivals[c] == nil {
		return
	}
	if h[name] == nil {
		h[name] = map[claim]struct{}{}
	}
	h[name][c] = struct{}{}
}

// give restores the claims to the Services that had them and still bid for them.
func (p *Planner) give(snap *tracker.Snapshot, had holders) {
	for name, claims := range had {
		if s := specOf(snap, name); s != nil {
			p.claims(s, func(c claim, b bid) {
				if _, is := claims[c]; is {
					p.owners.restore(c, b)
				}
			})
		}
	}
}

// Contested returns the claims that several Services bid for, with their owners. Options.Held returns them after a
// restart. The caller must not change the list.
func (p *Planner) Contested() []source.Holding { return p.owners.contested() }

// Checked gives what is new since the last call in what is to be checked. The Planner is made with Options.Checks.
func (p *Planner) Checked() endpointcheck.Targets { return p.checks.take() }

func specOf(snap *tracker.Snapshot, name tracker.Name) *source.Service {
	if svc := snap.Find(name); svc != nil {
		return svc.Spec
	}
	return nil
}
