package ipvs

import (
	"fmt"
	"net/netip"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

func (p *proxier) Summary() []string { return nil }

// Explain opens its own IPVS client, because a client is not safe for concurrent use.
func (p *proxier) Explain(d plan.Decision, _ bool) (path proxiers.Path, err error) {
	p.mu.RLock()
	at := key{d.Service.Name.Protocol, p.allocator.serverAddr(d.Service, d.Pool)}
	p.mu.RUnlock()
	k, err := openClient()
	if err != nil {
		return path, err
	}
	defer k.Close()
	s, err := k.GetService(request(at, ""))
	if err != nil {
		return path, fmt.Errorf("virtual server %s/%s: %w", at.at, at.proto, err)
	}
	list, err := k.GetDestinations(s)
	if err != nil {
		return path, fmt.Errorf("endpoints of virtual server %s/%s: %w", at.at, at.proto, err)
	}
	path = proxiers.Path{
		Scheduler: s.SchedName, Server: at.at,
		Endpoints: make(map[netip.AddrPort]proxiers.EndpointLoad, len(list)),
	}
	for _, dst := range list {
		path.Endpoints[addrPort(dst.Address, dst.Port)] = proxiers.EndpointLoad{
			Weight: dst.Weight, Active: dst.ActiveConnections, Inactive: dst.InactiveConnections,
		}
	}
	return path, nil
}
