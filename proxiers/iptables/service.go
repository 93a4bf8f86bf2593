package iptables

import (
	"net/netip"
	"slices"

	"edgeway/proxiers/plan"
)

// The trees of one family.
const (
	natServices = iota
	natNodePorts
	filterServices
	filterExternal
	filterFirewall
	filterNodePorts
	filterLoopback
	numTrees
)

// entry is what a frontend adds to one tree.
type entry struct {
	tree  int
	place place
	rules []string
}

// rendered is all that one ServicePort is in the kernel, but for its places in the trees' chains.
type rendered struct {
	chains  []chain
	entries []entry
}

// renderer turns ServicePorts of one family into chains. It knows of the node what their rules need.
type renderer struct {
	family plan.Family
	// pods are matches for what comes from a pod, one for each way to tell. Empty: there is none.
	pods []string
	// loopback says that NodePorts are reached on this family's loopback address.
	loopback bool
}

// service renders one ServicePort.
type service struct {
	*renderer
	*plan.ServicePort
	hash string
	out  rendered
	// masquerade are rules at the top of each pool's chain, as kube-proxy has them for ClusterIPs. leadsTo
	// says that a rule names the chain.
	masquerade [2][]string
	leadsTo    [2]bool
	// routes and ranges that have a chain, by their place in the list.
	routes []routes
	guards []guard
}

func (r *renderer) render(sp *plan.ServicePort) rendered {
	s := &service{renderer: r, ServicePort: sp, hash: servicePortHash(sp.Name)}
	for i := range sp.Frontends {
		s.frontend(&sp.Frontends[i])
	}
	for _, pool := range []plan.Pool{plan.ClusterPool, plan.LocalPool} {
		if s.leadsTo[pool] {
			s.pool(pool)
		}
	}
	s.endpoints()
	return s.out
}

func (s *service) add(table, name string, rules []string) {
	s.out.chains = append(s.out.chains, chain{table, name, rules})
}

// frontend leads packets to the frontend, and refuses what must be refused.
func (s *service) frontend(f *plan.Frontend) {
	if f.Kind != plan.NodePort && plan.FamilyOf(f.Addr) != s.family {
		return
	}
	rt := s.normal(f.Routes)
	var sources []netip.Prefix
	for _, p := range f.AllowFrom {
		if plan.FamilyOf(p.Addr()) == s.family {
			sources = append(sources, p)
		}
	}
	guarded := f.AllowFrom != nil
	if rt.forwards() && (!guarded || len(sources) > 0) {
		to := s.target(f, rt)
		if guarded {
			to = s.guard(guard{tableNAT, sources, to})
		}
		tree := natServices
		if f.Kind == plan.NodePort {
			tree = natNodePorts
		}
		s.enter(tree, f, rule(s.match(f), comment(label(s.Name)+" "+f.Kind.String()), jump(to)))
	}
	s.refuse(f, rt, guarded, sources)
	s.besides(f)
}

// normal removes a difference that no packet can meet: without a way to tell pods there are none.
func (s *service) normal(r routes) routes {
	if len(s.pods) == 0 {
		r[plan.FromPod] = r[plan.FromHost]
	}
	return r
}

// match is the frontend's address, if it has one of its own, and port.
func (s *service) match(f *plan.Frontend) string {
	if f.Kind == plan.NodePort {
		return port(s.Name.Protocol, f.Port)
	}
	return rule(destination(f.Addr), port(s.Name.Protocol, f.Port))
}

func (s *service) enter(tree int, f *plan.Frontend, rules ...string) {
	s.out.entries = append(s.out.entries, entry{tree, place{f.Addr, s.Name.Protocol, f.Port}, rules})
}

// target gives the chain for packets to the frontend: a pool's, or one that tells origins apart.
func (s *service) target(f *plan.Frontend, rt routes) string {
	if !rt.onePool() {
		return s.routesChain(tableNAT, rt)
	}
	pool := rt[0].Pool
	pod, host, outside := rt[plan.FromPod].SNAT, rt[plan.FromHost].SNAT, rt[plan.FromOutside].SNAT
	switch {
	case !pod && !host && !outside:
	case f.Kind != plan.ClusterIP:
		return s.routesChain(tableNAT, rt)
	case pod && host && outside:
		s.masquerade[pool] = append(s.masquerade[pool], rule(s.match(f), jump(chainMarkMasq)))
	case !pod && host && outside && len(s.pods) == 1:
		s.masquerade[pool] = append(s.masquerade[pool], rule("! "+s.pods[0], s.match(f), jump(chainMarkMasq)))
	default:
		return s.routesChain(tableNAT, rt)
	}
	return s.toPool(pool)
}

// toPool gives the name of a pool's chain to a rule that leads there.
func (s *service) toPool(p plan.Pool) string {
	s.leadsTo[p] = true
	return s.poolName(p)
}

func (s *service) poolName(p plan.Pool) string {
	if p == plan.LocalPool {
		return "KUBE-SVL-" + s.hash
	}
	return "KUBE-SVC-" + s.hash
}

// besides adds what a frontend means for other packets: other ports of a ClusterIP are rejected, and
// so is what the relay on loopback does not take.
func (s *service) besides(f *plan.Frontend) {
	if f.Kind == plan.ClusterIP {
		whole := entry{filterServices, place{addr: f.Addr}, []string{rule(destination(f.Addr), "-j REJECT")}}
		if !slices.ContainsFunc(s.out.entries, func(e entry) bool { return e.tree == whole.tree && e.place == whole.place }) {
			s.out.entries = append(s.out.entries, whole)
		}
		return
	}
	if f.Kind != plan.NodePort || !s.loopback {
		return
	}
	switch s.Name.Protocol {
	case plan.UDP:
		s.enter(filterLoopback, f, rule(s.match(f), jump(chainLoopbackUDP)))
	case plan.SCTP:
		s.enter(filterLoopback, f, rule(s.match(f), jump(chainLoopbackSCTP)))
	}
}
