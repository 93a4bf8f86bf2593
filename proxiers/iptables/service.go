package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// The constants are indexes into state.trees.
const (
	natServices = iota
	natNodePorts
	filterServices
	filterExternal
	filterFirewall
	filterNodePorts
	filterLoopback
)

type entry struct {
	tree  int
	dest  dest
	rules []string
}

// renderedService holds the chains of a ServicePort and its entries in state.trees.
type renderedService struct {
	chains  []xtables.Chain
	entries []entry
}

// renderer converts ServicePorts in one family to chains. Its fields hold the properties of the node that affect the
// rules.
type renderer struct {
	family plan.Family
	// pods holds an iptables match for each pod source range and pod interface. pods is empty if Edgeway cannot
	// identify pods.
	pods []string
	// loopback reports whether NodePorts accept connections on the family's loopback address.
	loopback bool
}

type service struct {
	*renderer
	*plan.ServicePort
	hash string
	out  renderedService
	// masquerade holds, for each pool, the rules that masquerade connections to ClusterIPs. Like kube-proxy, Edgeway
	// puts these rules at the start of the pool's chain. leadsTo reports, for each pool, whether a rule jumps to the
	// pool's chain.
	masquerade [2][]string
	leadsTo    [2]bool
	// routes and sourceFilters hold the Routes and source ranges that have their own chains. A chain's name depends on
	// its index in the slice.
	routes        []routes
	sourceFilters []sourceFilter
}

// render returns a ServicePort's chains and entries. render returns an empty renderedService if the ServicePort is nil
// or belongs to the other family.
func (r *renderer) render(sp *plan.ServicePort) renderedService {
	if sp == nil || sp.Family != r.family {
		return renderedService{}
	}
	s := &service{renderer: r, ServicePort: sp, hash: hash(label(sp.Name), protocolName(sp.Name.Protocol))}
	for i := range sp.Frontends {
		s.addFrontend(&sp.Frontends[i])
	}
	for _, pool := range []plan.Pool{plan.ClusterPool, plan.LocalPool} {
		if s.leadsTo[pool] {
			s.addPoolChain(pool)
		}
	}
	s.addEndpointChains()
	return s.out
}

func (s *service) add(table, name string, rules []string) {
	s.out.chains = append(s.out.chains, chain(table, name, rules...))
}

// addFrontend adds the rules that forward, reject or drop packets to the frontend.
func (s *service) addFrontend(f *plan.Frontend) {
	rt := s.normalize(f.Routes)
	guarded := f.AllowFrom != nil
	if rt.forwards() && (!guarded || len(f.AllowFrom) > 0) {
		to := s.target(f, rt)
		if guarded {
			to = s.sourceFilterChain(sourceFilter{xtables.NAT, f.AllowFrom, to})
		}
		tree := natServices
		if f.Kind == plan.NodePort {
			tree = natNodePorts
		}
		s.enter(tree, f, rule(s.match(f), comment(label(s.Name)+" "+f.Kind.String()), jump(to)))
	}
	s.addVerdictRules(f, rt)
	s.addUnservedRules(f)
}

// normalize replaces the pods' Route with the host's Route if Edgeway cannot identify pods, because then no packet has
// the origin FromPod.
func (s *service) normalize(r routes) routes {
	if len(s.pods) == 0 {
		r[plan.FromPod] = r[plan.FromHost]
	}
	return r
}

// match returns an iptables match for the frontend's port and, unless the frontend is a NodePort, for its address.
func (s *service) match(f *plan.Frontend) string {
	if f.Kind == plan.NodePort {
		return matchPort(s.Name.Protocol, f.Port)
	}
	return rule(destination(f.Addr), matchPort(s.Name.Protocol, f.Port))
}

func (s *service) enter(tree int, f *plan.Frontend, rules ...string) {
	s.out.entries = append(s.out.entries, entry{tree, dest{f.Addr, s.Name.Protocol, f.Port}, rules})
}

// target returns the name of the chain for packets to a frontend: a pool's chain, or a chain with separate rules for
// each origin.
func (s *service) target(f *plan.Frontend, rt routes) string {
	if !rt.useOnePool() {
		return s.routesChain(xtables.NAT, rt)
	}
	pool := rt[0].Pool
	snat := [3]bool{rt[plan.FromPod].SNAT, rt[plan.FromHost].SNAT, rt[plan.FromOutside].SNAT}
	switch {
	case snat == [3]bool{}:
	case f.Kind != plan.ClusterIP:
		return s.routesChain(xtables.NAT, rt)
	case snat == [3]bool{true, true, true}:
		s.masquerade[pool] = append(s.masquerade[pool], rule(s.match(f), jump(chainMarkMasq)))
	// iptables-nft (1.8.9) rejects "! -s 0.0.0.0/0".
	case snat == [3]bool{false, true, true} && len(s.pods) == 1 && !strings.HasSuffix(s.pods[0], "/0"):
		s.masquerade[pool] = append(s.masquerade[pool], rule("! "+s.pods[0], s.match(f), jump(chainMarkMasq)))
	default:
		return s.routesChain(xtables.NAT, rt)
	}
	return s.usePool(pool)
}

// usePool returns the name of a pool's chain and records that a rule jumps to it.
func (s *service) usePool(p plan.Pool) string {
	s.leadsTo[p] = true
	return s.poolName(p)
}

func (s *service) poolName(p plan.Pool) string {
	return [...]string{plan.ClusterPool: "KUBE-SVC-", plan.LocalPool: "KUBE-SVL-"}[p] + s.hash
}

// addUnservedRules adds the rules for packets to a ClusterIP's unused ports, and for packets to a NodePort on loopback
// if Edgeway does not relay the protocol.
func (s *service) addUnservedRules(f *plan.Frontend) {
	if f.Kind == plan.ClusterIP {
		whole := entry{filterServices, dest{addr: f.Addr}, verdictRules(destination(f.Addr), plan.UnusedPortVerdict)}
		if !slices.ContainsFunc(s.out.entries,
			func(e entry) bool { return e.tree == whole.tree && e.dest == whole.dest }) {
			s.out.entries = append(s.out.entries, whole)
		}
		return
	}
	if f.Kind == plan.NodePort && s.loopback && slices.Contains(plan.NotRelayedProtocols(), s.Name.Protocol) {
		s.enter(filterLoopback, f, rule(s.match(f), jump(notRelayedChain(s.Name.Protocol))))
	}
}

// addPoolChain adds the chain that chooses one of a pool's endpoints.
func (s *service) addPoolChain(p plan.Pool) {
	endpoints := s.Pools[p]
	rules := s.masquerade[p]
	if s.Affinity > 0 {
		for _, e := range endpoints {
			name := s.endpointName(e)
			rules = append(rules, fmt.Sprintf("-m recent --name %s --rcheck --seconds %d --reap -j %s", name,
				int(s.Affinity.Seconds()), name))
		}
	}
	for i, e := range endpoints {
		chance := ""
		if left := len(endpoints) - i; left > 1 {
			chance = fmt.Sprintf("-m statistic --mode random --probability %.10f", 1/float64(left))
		}
		to := dnat(s.Name.Protocol, e.Addr)
		if s.Affinity > 0 || e.Local {
			to = jump(s.endpointName(e))
		}
		rules = append(rules, rule(chance, to))
	}
	s.add(xtables.NAT, s.poolName(p), rules)
}

func (s *service) endpointName(e plan.Endpoint) string {
	return "KUBE-SEP-" + hash(label(s.Name), protocolName(s.Name.Protocol), e.Addr.String())
}

// addEndpointChains adds a chain for each endpoint for which a single DNAT rule is not enough.
func (s *service) addEndpointChains() {
	var all []plan.Endpoint
	for pool, used := range s.leadsTo {
		if used {
			all = append(all, s.Pools[pool]...)
		}
	}
	slices.SortFunc(all, func(a, b plan.Endpoint) int { return a.Addr.Compare(b.Addr) })
	for _, e := range slices.CompactFunc(all, func(a, b plan.Endpoint) bool { return a.Addr == b.Addr }) {
		if s.Affinity == 0 && !e.Local {
			continue
		}
		name := s.endpointName(e)
		var rules []string
		if e.Local {
			rules = append(rules,
				rule(source(netip.PrefixFrom(e.Addr.Addr(), e.Addr.Addr().BitLen())), jump(chainMarkMasq)))
		}
		to := dnat(s.Name.Protocol, e.Addr)
		if s.Affinity > 0 {
			to = rule("-m recent --name", name, "--set", to)
		}
		s.add(xtables.NAT, name, append(rules, to))
	}
}
