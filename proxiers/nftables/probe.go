package nftables

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// probeTable is never made: the kernel only checks it.
const probeTable = "edgeway-probe"

// Probe has nft and the kernel check a transaction with every kind of rule and element that we use.
func Probe(ctx context.Context) error {
	nft, err := openNFT()
	if err != nil {
		return err
	}
	r := newRenderer(nft, probeTable, 14)
	sample := probePlan()
	r.podInterfaces = sample.Node.PodInterfaces
	tx := nft.NewTransaction()
	r.base(tx, sample.Node, false)
	r.addNode(tx, sample.Node)
	r.chunk(tx, newLedger(), sample.Services, len(sample.Services))
	err = nft.Check(ctx, tx)
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("nft --check: %w", ctx.Err())
	case errors.As(err, &exit):
		return fmt.Errorf("%w: nft or the kernel refuses a rule (nftables 1.0.6 and Linux 5.13 or newer are known to do): %w", proxiers.ErrUnsupported, short(err))
	}
	return short(err)
}

// probePlan uses every feature once in each family; addresses are those of documentation.
func probePlan() *plan.Plan {
	p := &plan.Plan{Node: &plan.Node{
		NodePortAddrs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")},
		LoopbackAddrs: []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()},
		PodSources:    []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8:1::/48")},
		PodInterfaces: []string{"probe*"},
		ServiceCIDRs:  []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:2::/112")},
	}}
	p.Services = append(p.Services,
		probeService(plan.IPv4, "203.0.113.1", "198.51.100.1", "192.0.2.0/25"),
		probeService(plan.IPv6, "2001:db8:2::1", "2001:db8:1::1", "2001:db8:3::/64"))
	return p
}

func probeService(f plan.Family, vip, endpoint, source string) *plan.ServicePort {
	list := []plan.Endpoint{{Addr: netip.AddrPortFrom(netip.MustParseAddr(endpoint), 8080), Local: true}}
	return &plan.ServicePort{
		Name:     plan.ServicePortName{Namespace: "probe", Name: "probe", Protocol: plan.SCTP},
		Family:   f,
		Affinity: time.Hour,
		Pools:    [2][]plan.Endpoint{list, list},
		Frontends: []plan.Frontend{
			{
				Kind: plan.ClusterIP, Addr: netip.MustParseAddr(vip), Port: 80,
				AllowFrom: []netip.Prefix{netip.MustParsePrefix(source)},
				Routes:    [3]plan.Route{{}, {Pool: plan.LocalPool, SNAT: true}, {Verdict: plan.Drop}},
			},
			{
				Kind: plan.NodePort, Port: 30000,
				AllowFrom: []netip.Prefix{netip.MustParsePrefix(source)},
				Routes:    [3]plan.Route{{}, {Verdict: plan.Reject}, {Pool: plan.LocalPool}},
			},
		},
	}
}
