package nftables

import (
	"context"
	"fmt"
	"net/netip"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers/internal/nfnetlink"
	"edgeway/proxiers/plan"
)

// forgetAttempts is how often a deletion of clients is tried: it fails as a whole when one of them
// times out between the read and the deletion.
const forgetAttempts = 5

// forgetClients takes the clients of endpoints that are gone out of the maps of these ServicePorts.
// It comes after the transaction that took out the endpoints, so that no more clients are sent there or
// noted.
func (p *proxier) forgetClients(ctx context.Context, list []*plan.ServicePort) error {
	var c *nfConn
	for _, svc := range list {
		aff := affinityOf(svc)
		if aff == nil || !p.renderer.serves(svc.Family) {
			continue
		}
		if c == nil {
			var err error
			if c, err = dialNetfilter(); err != nil {
				return err
			}
			defer c.Close()
		}
		for pool, ports := range aff.ports {
			for _, port := range ports {
				valid := endpointAddrs(svc.Pools[pool], port)
				if err := p.forgetStale(ctx, c, svc.Family, aff.mapName(plan.Pool(pool), port), valid); err != nil {
					return fmt.Errorf("clients of %s: %w", svc.Name, err)
				}
			}
		}
	}
	return nil
}

// endpointAddrs gives the addresses of the endpoints with the port.
func endpointAddrs(list []plan.Endpoint, port uint16) map[netip.Addr]bool {
	addrs := make(map[netip.Addr]bool, len(list))
	for _, e := range list {
		if e.Addr.Port() == port {
			addrs[e.Addr.Addr()] = true
		}
	}
	return addrs
}

// forgetStale deletes the clients in a map whose endpoint is not valid.
func (p *proxier) forgetStale(ctx context.Context, c *nfConn, f plan.Family, name string, valid map[netip.Addr]bool) error {
	for attempt := 1; ; attempt++ {
		tx := p.renderer.nft.NewTransaction()
		err := c.elements(f, p.renderer.table, name, func(raw rawElement) error {
			client, ok := netip.AddrFromSlice(raw.key)
			target, _ := netip.AddrFromSlice(nfnetlink.Attr(raw.data, 1))
			if ok && !valid[target] {
				tx.Delete(&knftables.Element{Family: nftFamily(f), Table: p.renderer.table, Map: name, Key: []string{client.String()}})
			}
			return nil
		})
		if err != nil {
			return err
		}
		if err := p.commit(ctx, tx); err == nil || !knftables.IsNotFound(err) || attempt == forgetAttempts {
			return err
		}
	}
}
