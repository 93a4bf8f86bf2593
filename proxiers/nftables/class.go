package nftables

import (
	"fmt"
	"strconv"
	"strings"

	"edgeway/proxiers/plan"
)

// localSlots is the first slot of the local pool in the endpoint maps. No pool is as long as that.
const localSlots = 1 << 30

// pick is a Route together with the number of endpoints to pick from.
type pick struct {
	plan.Route
	count int
}

// class is everything that the rules for a frontend depend on. Frontends of equal classes share a
// chain, whose name spells the class out.
type class struct {
	family   plan.Family
	proto    plan.Protocol
	nodePort bool
	// guarded says that source ranges apply.
	guarded bool
	// picks is indexed by origin.
	picks [3]pick
	// affinity is nil when there is none. A class with affinity belongs to one ServicePort.
	affinity *affinity
}

// classOf gives the class of a frontend.
func classOf(svc *plan.ServicePort, f *plan.Frontend, aff *affinity) class {
	c := class{family: svc.Family, proto: svc.Name.Protocol, nodePort: f.Kind == plan.NodePort, guarded: f.AllowFrom != nil}
	for origin, route := range f.Routes {
		if route.Verdict != plan.Forward {
			c.picks[origin].Verdict = route.Verdict
			continue
		}
		if count := len(svc.Pools[route.Pool]); count > 0 {
			c.picks[origin] = pick{route, count}
			c.affinity = aff
		} else {
			c.picks[origin].Verdict = plan.Reject // an empty list has nothing to pick from
		}
	}
	return c
}

// plain is the class without affinity. A chain with affinity hands clients that it does not know to the
// plain one, because a rule that names an endpoint map makes the kernel (6.18) walk the whole map when
// it is the first in its chain: no chain of a single ServicePort may do that.
func (c *class) plain() class {
	p := *c
	p.affinity = nil
	return p
}

// chain gives the name of the class's chain.
func (c *class) chain() string {
	b := make([]byte, 0, 64)
	if c.nodePort {
		b = append(b, "port"...)
	} else {
		b = append(b, "addr"...)
	}
	b = append(b, '-')
	b = append(b, protoName(c.proto)...)
	if c.guarded {
		b = append(b, "-guarded"...)
	}
	for _, p := range c.picks {
		b = append(b, '-')
		b = p.appendName(b)
	}
	if c.affinity != nil {
		b = append(b, '-')
		b = append(b, c.affinity.chainID...)
	}
	return string(b)
}

func (p *pick) appendName(b []byte) []byte {
	if p.Verdict != plan.Forward {
		return append(b, p.Verdict.String()...)
	}
	b = append(b, poolLetter(p.Pool))
	b = strconv.AppendInt(b, int64(p.count), 10)
	if p.SNAT {
		b = append(b, 'm')
	}
	return b
}

func poolLetter(p plan.Pool) byte { return p.String()[0] }

// rules gives the rules of the class's chain.
func (c *class) rules(r *renderer) []string {
	ip := ipKeyword(c.family)
	rules := []string{"meta priority set none"}
	if c.guarded {
		set := specs[allowed].name
		if c.nodePort {
			set = specs[nodePortAllowed].name
		}
		rules = append(rules, fmt.Sprintf("%s%s . %s saddr != @%s drop", c.daddr(), "meta l4proto . th dport", ip, set))
	}
	pod, host, outside := c.picks[plan.FromPod], c.picks[plan.FromHost], c.picks[plan.FromOutside]
	if pod != outside || host != outside {
		rules = append(rules, c.pickRules(r, fmt.Sprintf("%s saddr @%s ", ip, podSources), pod)...)
		for _, name := range r.podInterfaces {
			rules = append(rules, c.pickRules(r, "iifname "+quoteInterface(name)+" ", pod)...)
		}
	}
	if host != outside {
		// Only in the output hook a packet has an output interface already.
		rules = append(rules, c.pickRules(r, "oif != 0 ", host)...)
		rules = append(rules, c.pickRules(r, "fib saddr type local ", host)...)
	}
	return append(rules, c.pickRules(r, "", outside)...)
}

// pickRules gives the rules for the packets of one origin, which condition tells.
func (c *class) pickRules(r *renderer, condition string, p pick) []string {
	if p.Verdict != plan.Forward {
		return []string{condition + p.Verdict.String()}
	}
	ip := ipKeyword(c.family)
	prefix := condition
	if p.SNAT {
		prefix += fmt.Sprintf("meta mark set meta mark or 0x%08x ", r.masqueradeMark)
	}
	// nft takes a map that gives a port only after a match of the transport protocol.
	prefix += fmt.Sprintf("meta l4proto %s dnat to ", protoName(c.proto))
	var rules []string
	if c.affinity != nil {
		for _, port := range c.affinity.ports[p.Pool] {
			rules = append(rules, fmt.Sprintf("%s%s saddr map @%s : %d", prefix, ip, c.affinity.mapName(p.Pool, port), port))
		}
		plain := c.plain()
		return append(rules, condition+"goto "+plain.chain())
	}
	offset := ""
	if p.Pool == plan.LocalPool {
		offset = fmt.Sprintf(" offset %d", localSlots)
	}
	return append(rules, fmt.Sprintf("%s%s%s dport . numgen random mod %d%s map @%s",
		prefix, c.daddr(), protoName(c.proto), p.count, offset, specs[endpointSet(c.proto, c.nodePort)].name))
}

// daddr begins a key: NodePorts are the same at each address.
func (c *class) daddr() string {
	if c.nodePort {
		return ""
	}
	return ipKeyword(c.family) + " daddr . "
}

// checkInterface refuses an interface pattern that can not be written in a rule.
func checkInterface(pattern string) error {
	name := strings.TrimSuffix(pattern, "*")
	if name == "" || len(pattern) > 15 || strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:@+", r))
	}) {
		return fmt.Errorf("pod interface %q: want a name of at most 15 letters, digits or any of -_.:@+ and perhaps a * at its end", pattern)
	}
	return nil
}

func quoteInterface(pattern string) string { return `"` + pattern + `"` }

func ipKeyword(f plan.Family) string {
	if f == plan.IPv4 {
		return "ip"
	}
	return "ip6"
}
