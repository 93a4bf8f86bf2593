package planner

import (
	"fmt"
	"net/netip"
	"slices"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// NodePortSetting is the key that the problem of a host without an address for NodePorts is about.
const NodePortSetting = "proxy.nodeport_addresses"

// portless is a family in which no address accepts NodePorts, and why.
type portless struct {
	family plan.Family
	why    string
}

// notePortless notes a family in which no address accepts NodePorts, if the host has one that could. ports are those that do.
func (e *environment) notePortless(o *Options, family plan.Family, ports []netip.Addr) {
	could := func(a netip.Addr) bool { return plan.FamilyOf(a) == family && !a.IsLoopback() }
	if len(ports) > 0 || !o.NodePorts.Primary || !slices.ContainsFunc(e.held, could) {
		return
	}
	why := "this host has no default route, and node.addresses has no address"
	if own := addrsOfFamily(o.NodeAddresses, family); len(own) > 0 {
		why = fmt.Sprintf("node.addresses has %s, which is not an address of this host", own[0])
	}
	e.portless = append(e.portless, portless{family, why})
}

// count adds to, or takes from, the ServicePorts with a NodePort that no address accepts.
func (p *Planner) count(ports []*plan.ServicePort, by int) {
	for _, none := range p.env.portless {
		for _, sp := range ports {
			if sp.Family == none.family && hasNodePort(sp) {
				p.wanting[none.family] += by
			}
		}
	}
}

// unserved gives the problems of a host that could serve the NodePorts there are, and does not, as it cannot tell which of its
// addresses is its primary one.
func (p *Planner) unserved() (out []source.Problem) {
	for _, none := range p.env.portless {
		if p.wanting[none.family] == 0 {
			continue
		}
		out = append(out, source.Problem{
			Object: source.Key{Kind: source.KindSetting, Name: NodePortSetting},
			Message: fmt.Sprintf("no address of this host accepts NodePorts over %s: \"primary\" stands for no address, as %s; set node.addresses to the address that is to have them, or %s to ranges or \"all\"",
				none.family, none.why, NodePortSetting),
		})
	}
	return out
}

func hasNodePort(sp *plan.ServicePort) bool {
	return slices.ContainsFunc(sp.Frontends, func(f plan.Frontend) bool { return f.Kind == plan.NodePort })
}
