package nftables

import (
	"fmt"
	"strconv"

	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
)

// firstLocalSlot is the local pool's first slot in the endpoint maps. Every pool has fewer than firstLocalSlot
// endpoints.
const firstLocalSlot = 1 << 30

// sizedRoute is a Route together with the number of endpoints to choose from.
type sizedRoute struct {
	plan.Route
	count int
}

// class holds all properties of a frontend that the frontend's rules depend on, except the family. Frontends with equal
// classes share a chain, whose name encodes the class.
type class struct {
	proto    plan.Protocol
	nodePort bool
	// hasSourceRanges reports whether the frontend accepts connections only from certain source ranges.
	hasSourceRanges bool
	// originRoutes holds the frontend's Routes, indexed by origin.
	originRoutes [3]sizedRoute
	// masqueradeStatement is an nft statement that, together with the mark, causes a later rule to masquerade a packet.
	masqueradeStatement string
	// affinity is nil if the class has no session affinity. A class with session affinity belongs to one ServicePort.
	affinity *affinity
}

// classOf returns the class of a ServicePort's frontend, given each pool's destinations.
func classOf(svc *plan.ServicePort, f *plan.Frontend, to [2][]plan.Endpoint, aff *affinity) *class {
	c := &class{proto: svc.Name.Protocol, nodePort: f.Kind == plan.NodePort, hasSourceRanges: f.AllowFrom != nil}
	for origin, route := range f.Routes {
		if route.Verdict != plan.Forward {
			c.originRoutes[origin].Verdict = route.Verdict
			continue
		}
		c.originRoutes[origin] = sizedRoute{route, len(to[route.Pool])}
		c.affinity = aff
	}
	return c
}

// plainClass returns the class without affinity. A chain with affinity sends unknown clients to the plain chain. If a
// chain's first rule refers to an endpoint map, the kernel (6.18) visits every element of the map. The chain of a
// single ServicePort must therefore not refer to an endpoint map.
func (c *class) plainClass() *class {
	p := *c
	p.affinity = nil
	return &p
}

func (c *class) chain() string {
	b := make([]byte, 0, 64)
	if c.nodePort {
		b = append(b, "port"...)
	} else {
		b = append(b, "addr"...)
	}
	b = append(b, '-')
	b = append(b, nfttable.ProtoName(c.proto)...)
	if c.hasSourceRanges {
		b = append(b, "-guarded"...)
	}
	for _, p := range c.originRoutes {
		b = append(b, '-')
		b = p.appendName(b)
	}
	if c.affinity != nil {
		b = append(b, '-')
		b = append(b, c.affinity.chainID...)
	}
	return string(b)
}

func (p *sizedRoute) appendName(b []byte) []byte {
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

func (c *class) Rules(n *plan.Node) []string {
	rules := []string{"meta priority set none"}
	if c.hasSourceRanges {
		set := "allowed"
		if c.nodePort {
			set = "nodeport-allowed"
		}
		rules = append(rules, fmt.Sprintf("%smeta l4proto . th dport . $ip saddr != @%s drop", c.keyPrefix(), set))
	}
	pod, host, outside := c.originRoutes[plan.FromPod], c.originRoutes[plan.FromHost], c.originRoutes[plan.FromOutside]
	if pod != outside || host != outside {
		rules = append(rules, c.originRules("$ip saddr @"+podSources+" ", pod)...)
		for _, name := range n.PodInterfaces {
			rules = append(rules, c.originRules(`iifname "`+name+`" `, pod)...)
		}
	}
	if host != outside {
		// In prerouting, a packet has no output interface yet, so only packets in the output hook match.
		rules = append(rules, c.originRules("oif != 0 ", host)...)
		rules = append(rules, c.originRules("fib saddr type local ", host)...)
	}
	return append(rules, c.originRules("", outside)...)
}

// originRules returns the rules for packets from one origin. The parameter condition is the nft expression that matches
// packets from the origin.
func (c *class) originRules(condition string, p sizedRoute) []string {
	if p.Verdict != plan.Forward {
		return []string{condition + p.Verdict.String()}
	}
	prefix := condition
	if p.SNAT {
		prefix += c.masqueradeStatement + "meta mark set meta mark or $mark "
	}
	// nft accepts a map lookup by port only after a match on the transport protocol.
	prefix += fmt.Sprintf("meta l4proto %s dnat to ", nfttable.ProtoName(c.proto))
	var rules []string
	if c.affinity != nil {
		for _, port := range c.affinity.ports[p.Pool] {
			rules = append(rules,
				fmt.Sprintf("%s$ip saddr map @%s : %d", prefix, c.affinity.mapName(p.Pool, port), port))
		}
		return append(rules, condition+"goto "+c.plainClass().chain())
	}
	offset := ""
	if p.Pool == plan.LocalPool {
		offset = fmt.Sprintf(" offset %d", firstLocalSlot)
	}
	endpoints := "endpoints-" + nfttable.ProtoName(c.proto)
	if c.nodePort {
		endpoints = "nodeport-" + endpoints
	}
	return append(rules, fmt.Sprintf("%s%s%s dport . numgen random mod %d%s map @%s",
		prefix, c.keyPrefix(), nfttable.ProtoName(c.proto), p.count, offset, endpoints))
}

// keyPrefix returns the part of a key that precedes the port, or "" for a NodePort, because a NodePort's key has no
// address.
func (c *class) keyPrefix() string {
	if c.nodePort {
		return ""
	}
	return "$ip daddr . "
}
