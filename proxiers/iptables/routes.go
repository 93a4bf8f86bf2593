package iptables

import (
	"net/netip"
	"slices"
	"strconv"

	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

type routes [3]plan.Route

func (r routes) forwards() bool {
	return slices.ContainsFunc(r[:], func(r plan.Route) bool { return r.Verdict == plan.Forward })
}

// useOnePool reports whether connections from all origins use the same pool.
func (r routes) useOnePool() bool {
	for _, x := range r {
		if x.Verdict != plan.Forward || x.Pool != r[0].Pool {
			return false
		}
	}
	return true
}

// sourceFilter describes a chain that jumps to another chain only for packets from certain sources.
type sourceFilter struct {
	table   string
	sources []netip.Prefix
	to      string
}

// chainName returns the name of the ServicePort's i-th chain with the given prefix. The first chain's name contains the
// ServicePort's own hash.
func (s *service) chainName(prefix string, i int) string {
	if i == 0 {
		return prefix + s.hash
	}
	return prefix + hash(s.hash, strconv.Itoa(i))
}

// routesChain returns the name of the chain that applies the Route for each origin. In the nat table, the chain
// forwards packets. In the filter table, the chain rejects or drops packets.
func (s *service) routesChain(table string, rt routes) string {
	i := slices.Index(s.routes, rt)
	if i < 0 {
		i = len(s.routes)
		s.routes = append(s.routes, rt)
	}
	name := s.chainName("KUBE-EXT-", i)
	if slices.ContainsFunc(s.out.chains, func(c xtables.Chain) bool { return c.Table == table && c.Name == name }) {
		return name
	}
	var rules []string
	for _, c := range s.conditions(rt) {
		switch {
		case table == xtables.Filter:
			rules = append(rules, verdictRules(c.match, c.route.Verdict)...)
		case c.route.Verdict != plan.Forward:
			rules = append(rules, rule(c.match, "-j RETURN"))
		default:
			if c.route.SNAT {
				rules = append(rules, rule(c.match, jump(chainMarkMasq)))
			}
			rules = append(rules, rule(c.match, jump(s.usePool(c.route.Pool))))
		}
	}
	s.add(table, name, rules)
	return name
}

// condition combines a match and a Route. The Route applies to packets that match the condition and no earlier
// condition.
type condition struct {
	match string
	route plan.Route
}

// conditions returns the conditions for pods, the host and all other sources, in the order in which Node.Origin checks
// them.
func (s *service) conditions(rt routes) []condition {
	pod, host, outside := rt[plan.FromPod], rt[plan.FromHost], rt[plan.FromOutside]
	var out []condition
	if pod != host || pod != outside {
		for _, m := range s.pods {
			out = append(out, condition{m, pod})
		}
	}
	if host != outside {
		out = append(out, condition{"-m addrtype --src-type LOCAL", host})
	}
	return append(out, condition{"", outside})
}

// sourceFilterChain returns the name of the chain for a source filter (loadBalancerSourceRanges).
func (s *service) sourceFilterChain(g sourceFilter) string {
	same := func(o sourceFilter) bool {
		return o.table == g.table && o.to == g.to && slices.Equal(o.sources, g.sources)
	}
	i := slices.IndexFunc(s.sourceFilters, same)
	if i >= 0 {
		return s.chainName("KUBE-FW-", i)
	}
	s.sourceFilters = append(s.sourceFilters, g)
	name := s.chainName("KUBE-FW-", len(s.sourceFilters)-1)
	var rules []string
	for _, p := range g.sources {
		rules = append(rules, rule(source(p), jump(g.to)))
	}
	if g.table == xtables.Filter {
		rules = append(rules, "-j DROP")
	}
	s.add(g.table, name, rules)
	return name
}

// verdictRules returns the rules for packets that the nat table did not redirect. A redirected packet has an endpoint's
// address as its destination, and matches none of the rules.
func verdictRules(match string, v plan.Verdict) []string {
	switch v {
	case plan.Reject:
		return []string{rule(match, "-j REJECT")}
	case plan.Drop:
		return []string{rule(match, "-j DROP")}
	}
	return nil
}

// addVerdictRules adds rules to the filter table that reject or drop packets whose destination is a frontend.
func (s *service) addVerdictRules(f *plan.Frontend, rt routes) {
	tree, guarded := filterExternal, f.AllowFrom != nil
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
		rules = append(rules,
			verdictRules(rule(c.match, s.match(f), comment(label(s.Name)+" has no endpoints")), c.route.Verdict)...)
	}
	switch {
	case guarded && (len(rules) == 0 || len(f.AllowFrom) == 0):
		rules = []string{rule(s.match(f), comment(label(s.Name)+" source ranges"), "-j DROP")}
	case guarded:
		to := s.sourceFilterChain(sourceFilter{xtables.Filter, f.AllowFrom, s.routesChain(xtables.Filter, rt)})
		rules = []string{rule(s.match(f), comment(label(s.Name)+" source ranges"), jump(to))}
	}
	if len(rules) > 0 {
		s.enter(tree, f, rules...)
	}
}
