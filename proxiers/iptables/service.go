package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"

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

// routes is what a frontend does with each origin.
type routes [3]plan.Route

// guard lets sources through to a chain.
type guard struct {
	table   string
	sources []netip.Prefix
	to      string
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

func (r routes) forwards() bool {
	return slices.ContainsFunc(r[:], func(r plan.Route) bool { return r.Verdict == plan.Forward })
}

// onePool says that all origins are forwarded to the same pool.
func (r routes) onePool() bool {
	for _, x := range r {
		if x.Verdict != plan.Forward || x.Pool != r[0].Pool {
			return false
		}
	}
	return true
}

// match is empty for what the place in the tree does not tell.
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

// numbered is the name of the i-th chain of a kind: the first has the ServicePort's own hash.
func (s *service) numbered(prefix string, i int) string {
	if i == 0 {
		return prefix + s.hash
	}
	return prefix + hash(s.hash, strconv.Itoa(i))
}

// routesChain gives the name of the chain that does with each origin as rt says, in the nat table as
// far as packets are forwarded, in the filter table as far as they are refused.
func (s *service) routesChain(table string, rt routes) string {
	i := slices.Index(s.routes, rt)
	if i < 0 {
		i = len(s.routes)
		s.routes = append(s.routes, rt)
	}
	name := s.numbered("KUBE-EXT-", i)
	if slices.ContainsFunc(s.out.chains, func(c chain) bool { return c.table == table && c.name == name }) {
		return name
	}
	var rules []string
	for _, c := range s.conditions(rt) {
		switch {
		case table == tableFilter:
			rules = append(rules, refusal(c.match, c.route)...)
		case c.route.Verdict != plan.Forward:
			rules = append(rules, rule(c.match, "-j RETURN"))
		default:
			if c.route.SNAT {
				rules = append(rules, rule(c.match, jump(chainMarkMasq)))
			}
			rules = append(rules, rule(c.match, jump(s.toPool(c.route.Pool))))
		}
	}
	s.add(table, name, rules)
	return name
}

// condition is a route and the match of the packets that take it, if no condition before it held.
type condition struct {
	match string
	route plan.Route
}

// conditions are in the order of Node.Origin: pods, the host, all others.
func (s *service) conditions(rt routes) []condition {
	pod, host, outside := rt[plan.FromPod], rt[plan.FromHost], rt[plan.FromOutside]
	var out []condition
	if pod != host || pod != outside {
		for _, m := range s.pods {
			out = append(out, condition{m, pod})
		}
	}
	if host != outside {
		out = append(out, condition{fromLocal, host})
	}
	return append(out, condition{"", outside})
}

// refusal is the rule for packets that the nat table left alone. Those that it forwards come here with
// an endpoint as their destination, so nothing has to be said of them.
func refusal(match string, r plan.Route) []string {
	switch r.Verdict {
	case plan.Reject:
		return []string{rule(match, "-j REJECT")}
	case plan.Drop:
		return []string{rule(match, "-j DROP")}
	}
	return nil
}

// guard gives the name of the chain that lets only some sources through (loadBalancerSourceRanges).
func (s *service) guard(g guard) string {
	same := func(o guard) bool { return o.table == g.table && o.to == g.to && slices.Equal(o.sources, g.sources) }
	i := slices.IndexFunc(s.guards, same)
	if i >= 0 {
		return s.numbered("KUBE-FW-", i)
	}
	s.guards = append(s.guards, g)
	name := s.numbered("KUBE-FW-", len(s.guards)-1)
	var rules []string
	for _, p := range g.sources {
		rules = append(rules, rule(source(p), jump(g.to)))
	}
	if g.table == tableFilter {
		rules = append(rules, "-j DROP")
	}
	s.add(g.table, name, rules)
	return name
}

// refuse rejects and drops in the filter table.
func (s *service) refuse(f *plan.Frontend, rt routes, guarded bool, sources []netip.Prefix) {
	tree := filterExternal
	switch {
	case f.Kind == plan.NodePort:
		tree = filterNodePorts
	case f.Kind == plan.ClusterIP:
		tree = filterServices
	case guarded:
		tree = filterFirewall
	}
	var rules []string
	for _, c := range s.conditions(rt) {
		rules = append(rules, refusal(rule(c.match, s.match(f), comment(label(s.Name)+" has no endpoints")), c.route)...)
	}
	switch {
	case guarded && (len(rules) == 0 || len(sources) == 0):
		rules = []string{rule(s.match(f), comment(label(s.Name)+" source ranges"), "-j DROP")}
	case guarded:
		to := s.guard(guard{tableFilter, sources, s.routesChain(tableFilter, rt)})
		rules = []string{rule(s.match(f), comment(label(s.Name)+" source ranges"), jump(to))}
	}
	if len(rules) > 0 {
		s.enter(tree, f, rules...)
	}
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

// pool makes the chain that chooses one of a pool's endpoints.
func (s *service) pool(p plan.Pool) {
	endpoints := s.Pools[p]
	rules := s.masquerade[p]
	if s.Affinity > 0 {
		for _, e := range endpoints {
			name := s.endpointName(e)
			rules = append(rules, fmt.Sprintf("-m recent --name %s --rcheck --seconds %d --reap -j %s", name, int(s.Affinity.Seconds()), name))
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
	s.add(tableNAT, s.poolName(p), rules)
}

func (s *service) endpointName(e plan.Endpoint) string {
	return "KUBE-SEP-" + hash(label(s.Name), protocolName(s.Name.Protocol), e.Addr.String())
}

// endpoints makes the chains of endpoints that need one.
func (s *service) endpoints() {
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
			rules = append(rules, rule(source(netip.PrefixFrom(e.Addr.Addr(), e.Addr.Addr().BitLen())), jump(chainMarkMasq)))
		}
		to := dnat(s.Name.Protocol, e.Addr)
		if s.Affinity > 0 {
			to = rule("-m recent --name", name, "--set", to)
		}
		s.add(tableNAT, name, append(rules, to))
	}
}
