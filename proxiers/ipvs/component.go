package ipvs

import (
	"context"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/nftables"
)

// Component describes the ipvs backend.
func Component() proxiers.Component {
	return proxiers.Component{
		Name:  "ipvs",
		Doc:   "IPVS virtual servers and an nftables table",
		Probe: probe,
		New: func(_ context.Context, env proxiers.Env) (proxiers.Proxier, error) {
			p, err := newProxier(env)
			if err != nil {
				return nil, err
			}
			return p, nil
		},
		Cleanup:  cleanup,
		Settings: keys(),
		Traits: proxiers.Traits{
			DropIn: "ipvs.conf", CountsConnections: true,
			// If a flowtable offloads a connection through IPVS, the connection hangs, or a peer resets it (Linux 6.1,
			// 6.12, 7.2).
			NoFastPathReason: "IPVS translates connections itself, so a connection breaks if its packets bypass IPVS",
		},
	}
}

// probe tests the host without sending a netlink request to IPVS or using a scheduler, because either would load a
// kernel module.
func probe(ctx context.Context) error {
	if err := available(); err != nil {
		return err
	}
	return nfttable.Probe(ctx, schema(&allocator{}, false), nftables.Sample())
}
