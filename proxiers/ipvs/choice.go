package ipvs

import (
	"fmt"
	"net/netip"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// Choice implements proxiers.Chooser. It has a socket of its own for the question.
func (p *proxier) Choice(svc *plan.ServicePort, which plan.Pool) (c proxiers.Choice, err error) {
	p.mu.RLock()
	at := key{svc.Name.Protocol, p.places.of(svc, which)}
	p.mu.RUnlock()
	k, err := openKernel()
	if err != nil {
		return c, err
	}
	defer k.Close()
	s, err := k.GetService(request(at, ""))
	if err != nil {
		return c, fmt.Errorf("virtual server %s/%s: %w", at.at, at.proto, err)
	}
	list, err := k.GetDestinations(s)
	if err != nil {
		return c, fmt.Errorf("destinations of virtual server %s/%s: %w", at.at, at.proto, err)
	}
	c = proxiers.Choice{Scheduler: s.SchedName, Server: at.at, Endpoints: make(map[netip.AddrPort]proxiers.Chosen, len(list))}
	for _, d := range list {
		c.Endpoints[addrPort(d.Address, d.Port)] = proxiers.Chosen{Weight: d.Weight, Active: d.ActiveConnections, Inactive: d.InactiveConnections}
	}
	return c, nil
}
