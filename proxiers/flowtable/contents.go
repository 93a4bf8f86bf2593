package flowtable

import (
	"fmt"
	"slices"
	"strings"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
)

// These constants are the indexes of the nftables table's sets. KEP-4963 specifies the names of the port sets.
const (
	nodePorts = iota
	ports4
	ports6
	addrs4
	addrs6
	numSets
)

var sets = [numSets]struct{ name, typ string }{
	nodePorts: {"service-nodeports", "inet_proto . inet_service"},
	ports4:    {"service-ip4-ports", "inet_proto . ipv4_addr . inet_service"},
	ports6:    {"service-ip6-ports", "inet_proto . ipv6_addr . inet_service"},
	addrs4:    {"nodeport-ip4-addresses", "ipv4_addr"},
	addrs6:    {"nodeport-ip6-addresses", "ipv6_addr"},
}

// contents holds the sorted elements of each set, in nft's syntax.
type contents struct {
	of [numSets][]string
	// ipv6 reports whether the kernel supports IPv6.
	ipv6 bool
}

func contentsOf(p *plan.Plan, families []plan.Family) *contents {
	c := &contents{ipv6: slices.Contains(families, plan.IPv6)}
	for _, svc := range p.Services {
		if !mayOffload(svc) || !slices.Contains(families, svc.Family) {
			continue
		}
		for i := range svc.Frontends {
			c.addFrontend(svc, &svc.Frontends[i])
		}
	}
	if len(c.of[nodePorts]) > 0 {
		for _, a := range p.Node.NodePortAddrs {
			if a.Is4() {
				c.of[addrs4] = append(c.of[addrs4], a.String())
			} else if c.ipv6 {
				c.of[addrs6] = append(c.of[addrs6], a.String())
			}
		}
	}
	for i := range c.of {
		slices.Sort(c.of[i])
		c.of[i] = slices.Compact(c.of[i])
	}
	return c
}

func (c *contents) addFrontend(svc *plan.ServicePort, f *plan.Frontend) {
	proto := nfttable.ProtoName(svc.Name.Protocol)
	set, element := ports4, fmt.Sprintf("%s . %s . %d", proto, f.Addr, f.Port)
	switch {
	case f.Kind == plan.NodePort:
		set, element = nodePorts, fmt.Sprintf("%s . %d", proto, f.Port)
	case svc.Family == plan.IPv6:
		set = ports6
	}
	c.of[set] = append(c.of[set], element)
}

// mayOffload reports whether the kernel may offload the ServicePort's connections. Flowtables do not support SCTP
// (Linux 7.2).
func mayOffload(svc *plan.ServicePort) bool {
	return svc.LongLived && (svc.Name.Protocol == plan.TCP || svc.Name.Protocol == plan.UDP)
}

// idle reports whether no Service has opted in to the fast path. If no Service has opted in, the follower creates no
// nftables table and adds no hooks to devices.
func (c *contents) idle() bool { return len(c.of[nodePorts])+len(c.of[ports4])+len(c.of[ports6]) == 0 }

// affectsTable reports whether a change may affect the contents of the nftables table.
func affectsTable(change proxiers.Change) bool {
	if !slices.Equal(change.Prev.Node.NodePortAddrs, change.Next.Node.NodePortAddrs) {
		return true
	}
	if slices.ContainsFunc(change.Removed, mayOffload) {
		return true
	}
	return slices.ContainsFunc(change.Changed, func(svc *plan.ServicePort) bool {
		before := change.Prev.Find(svc.Name, svc.Family)
		return mayOffload(svc) || before != nil && mayOffload(before)
	})
}

// mayInvalidate reports whether a change may invalidate offloaded connections, even if the nftables table stays the
// same. A change invalidates connections if a Service that opted in loses a frontend, an endpoint or a source range.
func mayInvalidate(change proxiers.Change) bool {
	return slices.ContainsFunc(change.Removed, mayOffload) ||
		slices.ContainsFunc(change.Changed, func(svc *plan.ServicePort) bool {
			before := change.Prev.Find(svc.Name, svc.Family)
			return before != nil && mayOffload(before) &&
				(!mayOffload(svc) || changesFrontend(before, svc) || removesEndpoint(before.Serving, svc.Serving))
		})
}

// removesEndpoint reports whether an endpoint in the list before is missing from the list after.
func removesEndpoint(before, after []plan.Endpoint) bool {
	return slices.ContainsFunc(before, func(e plan.Endpoint) bool {
		_, stays := plan.FindEndpoint(after, e.Addr)
		return !stays
	})
}

// changesFrontend reports whether the ServicePort lost a frontend, or whether a frontend's allowed sources or routes
// changed.
func changesFrontend(before, after *plan.ServicePort) bool {
	return slices.ContainsFunc(before.Frontends, func(was plan.Frontend) bool {
		i, still := slices.BinarySearchFunc(after.Frontends, was, func(a, b plan.Frontend) int { return a.Compare(&b) })
		if !still {
			return true
		}
		is := &after.Frontends[i]
		return was.Routes != is.Routes || (was.AllowFrom == nil) != (is.AllowFrom == nil) ||
			!slices.Equal(was.AllowFrom, is.AllowFrom)
	})
}

func (c *contents) elements() string {
	var b strings.Builder
	for i, list := range c.of {
		for chunk := range slices.Chunk(list, elementsPerCommand) {
			fmt.Fprintf(&b, "add element inet %s %s { %s }\n", tableName, sets[i].name, strings.Join(chunk, ", "))
		}
	}
	return b.String()
}
