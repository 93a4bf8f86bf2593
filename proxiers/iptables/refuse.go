package iptables

import (
	"net/netip"

	"edgeway/proxiers/plan"
)

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
