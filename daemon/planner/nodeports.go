package planner

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/source"
	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// NodePortAddressesID and NodePortRangeID are the IDs of the faults in the NodePort settings.
const (
	NodePortAddressesID = "nodeport-addresses"
	NodePortRangeID     = "nodeport-range"
)

// portRefusal returns the reason why a Service cannot use a port of the host, or "" if there is none.
func (p *Planner) portRefusal(s *source.Service, c exclusivePort) string {
	switch key := p.opts.OwnPorts[c.port]; {
	case c.protocol == plan.TCP && key != "":
		return fmt.Sprintf("%s uses port %d on this host", key, c.port)
	case c.protocol == plan.TCP && slices.Contains(p.env.apiPorts, c.port):
		return fmt.Sprintf("the API server uses port %d on this host", c.port)
	case !s.Manifest && !p.opts.Proxy.NodePortRange.Has(c.port):
		return fmt.Sprintf("port %d is not in proxy.nodeport_range (%s)", c.port, p.opts.Proxy.NodePortRange)
	}
	return ""
}

// countOutOfRange counts a Service's ports outside Proxy.NodePortRange in p.outOfRangePorts. by is 1 to add the ports,
// or -1 to remove them.
func (p *Planner) countOutOfRange(s *source.Service, by int) {
	if s.Manifest || !p.isReachable(s) {
		return
	}
	for i := range s.Ports {
		if port := s.Ports[i].NodePort; port != 0 && !p.opts.Proxy.NodePortRange.Has(port) {
			add(p.outOfRangePorts, port, by)
		}
	}
	if c, ok := healthCheckPort(s); ok && !p.opts.Proxy.NodePortRange.Has(c.port) {
		add(p.outOfRangePorts, c.port, by)
	}
}

func add(ports map[uint16]int, port uint16, by int) {
	if ports[port] += by; ports[port] == 0 {
		delete(ports, port)
	}
}

func (p *Planner) nodePortRangeFaults(node *plan.Node) []fault.Fault {
	if len(p.outOfRangePorts) == 0 || len(node.NodePortAddrs) == 0 && len(node.LoopbackAddrs) == 0 {
		return nil
	}
	const setting = "proxy.nodeport_range"
	ports, r := slices.Sorted(maps.Keys(p.outOfRangePorts)), p.opts.Proxy.NodePortRange
	wider := config.PortRange{First: min(r.First, ports[0]), Last: max(r.Last, ports[len(ports)-1])}
	return []fault.Fault{settingFault(setting,
		fault.New(NodePortRangeID, fault.Problem, fmt.Sprintf("%s = %q", setting, wider),
			"Edgeway does not serve NodePorts or health check ports outside %s: %s", r, text.FirstOf(ports)))}
}

type portlessFamily struct {
	family plan.Family
	why    string
}

// notePortless records the family if no address accepts its NodePorts although the host has a suitable address. ports
// lists the family's addresses that accept NodePorts, and may be empty.
func (e *environment) notePortless(o *Options, family plan.Family, ports []netip.Addr) {
	could := func(a netip.Addr) bool { return plan.FamilyOf(a) == family && !a.IsLoopback() }
	if len(ports) > 0 || !o.Proxy.NodePortAddresses.Primary || !slices.ContainsFunc(e.hostAddrs, could) {
		return
	}
	why := fmt.Sprintf("this host has no %[1]s default route, and node.addresses lists no %[1]s address", family)
	if own := addrsOfFamily(o.Node.Addresses, family); len(own) > 0 {
		why = fmt.Sprintf("node.addresses lists %s, which is not an address of this host", own[0])
	}
	e.portlessFamilies = append(e.portlessFamilies, portlessFamily{family, why})
}

// countPortless changes p.portlessCounts by the given number for each ServicePort whose NodePort no address accepts.
func (p *Planner) countPortless(ports []*plan.ServicePort, by int) {
	for _, none := range p.env.portlessFamilies {
		for _, sp := range ports {
			if sp.Family == none.family && hasNodePort(sp) {
				p.portlessCounts[none.family] += by
			}
		}
	}
}

// nodePortAddrFaults returns a fault for each family in which "primary" selects no address and a Service requests a
// NodePort. If the host serves no NodePorts in any family, the first fault has the severity Problem.
func (p *Planner) nodePortAddrFaults(node *plan.Node) (out []fault.Fault) {
	const setting = "proxy.nodeport_addresses"
	for _, none := range p.env.portlessFamilies {
		if p.portlessCounts[none.family] == 0 {
			continue
		}
		problem := settingFault(setting, fault.New(NodePortAddressesID, fault.Warning,
			proposeAddresses(p.host.Addrs, node.PodSources),
			"no address of this host accepts NodePorts over %s, because \"primary\" selects no "+
				"address: %s; set node.addresses to the address that clients use, or set %s to ranges or \"all\"",
			none.family, none.why, setting))
		if len(node.NodePortAddrs) == 0 && len(out) == 0 {
			problem.Severity = fault.Problem
		}
		out = append(out, problem)
	}
	return out
}

// proposeAddresses returns a node.addresses setting with one address of each family. The setting lists the other
// addresses in a comment, because Edgeway cannot detect which address clients use. An address that only pods or this
// host can reach comes last, because few clients use it.
func proposeAddresses(held []nodeinfo.Addr, pods []netip.Prefix) string {
	var proposed, others []string
	seen := map[plan.Family]bool{}
	byChance := slices.SortedStableFunc(slices.Values(held), func(a, b nodeinfo.Addr) int {
		return cmp.Or(compareBools(!contains(pods, a.Addr), !contains(pods, b.Addr)),
			compareBools(!a.Bridge && !a.Dummy, !b.Bridge && !b.Dummy))
	})
	for _, held := range byChance {
		switch a, family := held.Addr, plan.FamilyOf(held.Addr); {
		case !a.IsGlobalUnicast():
		case seen[family]:
			others = append(others, a.String())
		default:
			seen[family] = true
			proposed = append(proposed, fmt.Sprintf("%q", a))
		}
	}
	if len(proposed) == 0 {
		return ""
	}
	fix := "node.addresses = [" + strings.Join(proposed, ", ") + "]"
	if len(others) > 0 {
		fix += "  # or " + strings.Join(others, ", ")
	}
	return fix
}

func hasNodePort(sp *plan.ServicePort) bool {
	return slices.ContainsFunc(sp.Frontends, func(f plan.Frontend) bool { return f.Kind == plan.NodePort })
}
