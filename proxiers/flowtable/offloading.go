package flowtable

import (
	"context"
	"fmt"
	"net/netip"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// destination is a connection's destination before translation.
type destination struct {
	protocol plan.Protocol
	at       netip.AddrPort
}

// Offloading implements proxiers.Offloader. Offloading dumps only offloaded connections: the kernel (since Linux 5.15)
// omits all other connections from the dump.
func (f *follower) Offloading(ctx context.Context) (proxiers.Offloading, error) {
	f.mu.Lock()
	p, out := f.plan, proxiers.Offloading{Devices: f.deviceNames}
	f.mu.Unlock()
	if p == nil {
		return out, nil
	}
	owner := map[destination]int{}
	for _, svc := range p.Services {
		if !mayOffload(svc) {
			continue
		}
		for at := range svc.Destinations(p.Node) {
			owner[destination{svc.Name.Protocol, at}] = len(out.Services)
		}
		out.Services = append(out.Services, proxiers.OffloadedService{Name: svc.Name, Family: svc.Family})
	}
	if len(owner) == 0 {
		return out, nil
	}
	return out, eachOffloaded(ctx, f.env.Families, func(flow *netlink.Flow) {
		i, ours := owner[destination{flow.Protocol, flow.Orig.Dst}]
		if !ours {
			return // another program's flowtable offloads the connection
		}
		svc := &out.Services[i]
		svc.Flows++
		svc.Packets += flow.Packets
		svc.Bytes += flow.Bytes
	})
}

func eachOffloaded(ctx context.Context, families []plan.Family, visit func(*netlink.Flow)) error {
	table, err := netlink.OpenConntrack()
	if err != nil {
		return err
	}
	defer table.Close()
	release := table.AbortOnDone(ctx)
	defer release()
	for _, family := range families {
		if err := table.DumpOffloaded(family, visit); err != nil {
			return fmt.Errorf("list of %s connections in the flowtable: %w", family, err)
		}
	}
	return nil
}
