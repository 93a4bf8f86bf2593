package iptables

import (
	"fmt"
	"net/netip"
	"slices"

	"edgeway/proxiers/plan"
)

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
