package control

import (
	"fmt"
	"net/netip"
	"strings"

	"edgeway/proxiers/plan"
)

// Explanation says what happens to a new connection, and why.
type Explanation struct {
	// InForce is false when it is about a plan that is not in the kernel.
	InForce     bool   `json:"inForce"`
	Source      string `json:"source"`
	Interface   string `json:"interface,omitempty"`
	Destination string `json:"destination"`
	Protocol    string `json:"protocol"`
	// Origin is "pod", "host" or "outside"; Verdict "forward", "reject", "drop" or "pass".
	Origin  string `json:"origin"`
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
	// Service and Frontend are empty when no Service has the destination.
	Service  string `json:"service,omitempty"`
	Frontend string `json:"frontend,omitempty"`
	// Affinity is how long the client keeps its endpoint.
	Affinity  string              `json:"affinity,omitempty"`
	Endpoints []ExplainedEndpoint `json:"endpoints,omitempty"`
	// Out are those of PlanService.
	Out []string `json:"out,omitempty"`
	// Gaps are those of PlanService.
	Gaps []string `json:"gaps,omitempty"`

	svc *plan.ServicePort
}

// ExplainedEndpoint is an endpoint that the connection may go to.
type ExplainedEndpoint struct {
	Address string `json:"address"`
	Local   bool   `json:"local,omitempty"`
	// SNAT says that the endpoint sees this host's address instead of the client's.
	SNAT bool `json:"snat"`
}

// elsewhere is the interface of a packet from another host when no interface was given. No pattern
// for pods' interfaces should match it.
const elsewhere = "?"

// Explain asks the plan about a connection. src is an address, followed by "@INTERFACE" when pods
// are detected by their interface, or "host"; dst is "ADDR:PORT" and may end in "/PROTOCOL"; proto is
// "tcp" (also when it is empty), "udp" or "sctp".
func Explain(p *plan.Plan, gaps Gaps, src, dst, proto string) (Explanation, error) {
	pkt, err := packet(p, src, dst, proto)
	if err != nil {
		return Explanation{}, err
	}
	d := p.Decide(pkt)
	e := Explanation{
		Source: pkt.Src.String(), Destination: pkt.Dst.String(), Protocol: pkt.Protocol.String(),
		Origin: d.Origin.String(), Verdict: d.Verdict.String(), Reason: d.Reason,
	}
	if pkt.InInterface != elsewhere {
		e.Interface = pkt.InInterface
	}
	if d.Service == nil {
		return e, nil
	}
	e.Service, e.Gaps, e.svc = d.Service.Name.String(), gaps.texts(d.Service), d.Service
	e.Frontend = d.Frontend.Kind.String() + " " + frontendAddress(d.Frontend)
	if d.Service.Affinity != 0 && d.Verdict == plan.Forward {
		e.Affinity = d.Service.Affinity.String()
	}
	for _, ep := range d.Endpoints {
		e.Endpoints = append(e.Endpoints, ExplainedEndpoint{ep.Addr.String(), ep.Local, d.SNATFor(pkt.Src, ep)})
	}
	return e, nil
}

func packet(p *plan.Plan, src, dst, proto string) (plan.Packet, error) {
	var pkt plan.Packet
	addrPort, suffix, has := strings.Cut(dst, "/")
	if has {
		proto = suffix
	}
	if proto == "" {
		proto = "TCP"
	}
	protocol, ok := plan.ParseProtocol(strings.ToUpper(proto))
	if !ok {
		return pkt, fmt.Errorf("protocol %q is not tcp, udp or sctp", proto)
	}
	to, err := netip.ParseAddrPort(addrPort)
	if err != nil {
		return pkt, fmt.Errorf("destination %q is not of the form ADDRESS:PORT (or [ADDRESS]:PORT for IPv6)", dst)
	}
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	pkt = plan.Packet{Protocol: protocol, Dst: to}
	if src == "host" && to.Addr().IsLoopback() {
		src = to.Addr().String() // as the kernel does
	}
	pkt.Src, pkt.InInterface, err = origin(p, src, plan.FamilyOf(to.Addr()))
	if err == nil && plan.FamilyOf(pkt.Src) != plan.FamilyOf(to.Addr()) {
		err = fmt.Errorf("source %s and destination %s are of different address families", pkt.Src, to.Addr())
	}
	return pkt, err
}

// origin parses the source and gives the interface that it comes in by: none for the host's own.
func origin(p *plan.Plan, src string, family plan.Family) (netip.Addr, string, error) {
	if src == "host" {
		return hostAddr(p, family)
	}
	addr, iface, _ := strings.Cut(src, "@")
	a, err := netip.ParseAddr(addr)
	if err != nil {
		return a, "", fmt.Errorf(`source %q is neither "host" nor of the form ADDRESS or ADDRESS@INTERFACE`, src)
	}
	a = a.Unmap()
	if iface != "" {
		return a, iface, nil
	}
	if p.Node != nil {
		for _, own := range p.Node.HostAddrs {
			if own == a {
				return a, "", nil
			}
		}
	}
	return a, elsewhere, nil
}

// hostAddr prefers an address that is not loopback.
func hostAddr(p *plan.Plan, family plan.Family) (netip.Addr, string, error) {
	var found netip.Addr
	if p.Node != nil {
		for _, a := range p.Node.HostAddrs {
			if plan.FamilyOf(a) == family && (!found.IsValid() || found.IsLoopback()) {
				found = a
			}
		}
	}
	if !found.IsValid() {
		return found, "", fmt.Errorf("this host has no %s address", family)
	}
	return found, "", nil
}
