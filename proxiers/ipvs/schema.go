package ipvs

import (
	"net/netip"
	"slices"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
)

const tableName = proxiers.IPVSTable

// servers is the SetID of the set that holds the addresses and ports of the virtual servers.
const servers = nftables.FirstOwnSet

// The chains run after the IPVS hooks (Linux, ip_vs_core.c), whose priorities are nat + 1 and nat + 2 in output, and
// nat - 2 and nat - 1 in input.
const (
	afterOutput      = knftables.DNATPriority + "+3"
	afterAfterOutput = knftables.DNATPriority + "+4"
	afterInput       = knftables.SNATPriority + "+1"
	beforeSNAT       = knftables.SNATPriority + "-10"
)

func schema(p *allocator, count bool) nfttable.Schema {
	const (
		server = "meta l4proto { tcp, udp, sctp } $ip daddr . meta l4proto . th dport @servers "
		// The kernel routes the host's own packets before IPVS chooses an endpoint, which may be on the host itself.
		// Changing the mark causes the kernel to look up the route again, and the next chain restores the mark.
		reroute = `ct state new ct status dnat ct direction original oifname != "lo" fib daddr type local meta mark set meta mark xor 0x1`
		// After IPVS, a packet traverses the output hooks again, where other programs may set their own marks. The
		// rules therefore also record in the packet's priority that the packet needs masquerading. The kernel keeps the
		// priority on the path to the output hooks, but resets the priority of packets that it forwards.
		remembered = "ed6e:1"
	)
	rerouting := func(name string, priority knftables.BaseChainPriority) nfttable.Chain {
		return nfttable.Chain{
			Name: name, Type: knftables.RouteType, Hook: knftables.OutputHook, Priority: priority,
			Rules: []string{reroute},
		}
	}
	return nftables.Schema(nftables.Options{
		Table:               tableName,
		CountConnections:    count,
		Destination:         p.serverAddr,
		MasqueradeStatement: "meta priority set " + remembered + " ",
		MasqueradeRule: "meta priority " + remembered +
			" meta priority set none meta mark set meta mark and $rest masquerade fully-random",
		Sets: []nfttable.Set{{
			Name: "servers",
			Key:  []nfttable.Field{nfttable.Addr, nfttable.Proto, nfttable.Port},
		}},
		Chains: []nfttable.Chain{rerouting("reroute", afterOutput), rerouting("reroute-again", afterAfterOutput)},
		LearnChains: []nfttable.Chain{
			// If IPVS did not translate a packet, for example because another program deleted the virtual server, the
			// rules must prevent the packet from reaching the host's own programs.
			nftables.BaseChain("untaken-input", knftables.InputHook, afterInput, server+"reject", nftables.LearnRule),
			// During a takeover, the host has no route to the virtual server yet. The host therefore forwards packets
			// for the virtual server to the other backend's rules, which would reject these packets. This chain drops
			// the packets before the other backend's rules can reject them, and TCP retransmits the packets.
			nftables.BaseChain("untaken-forward", knftables.ForwardHook, knftables.FilterPriority+"-10",
				"ct state new "+server+"drop"),
			nftables.BaseChain("untaken-postrouting", knftables.PostroutingHook, beforeSNAT, server+"drop",
				nftables.LearnRule),
		},
		AddService: func(n *nfttable.Needs, svc *plan.ServicePort) {
			p.keys(svc, func(k key, _ []plan.Endpoint) {
				n.AddEntry(servers, nfttable.Element{
					Family: svc.Family, Proto: k.proto, Addr: k.at.Addr(),
					Port: k.at.Port(),
				}, nfttable.Value{})
				if !isClusterIP(svc, k.at.Addr()) { // the table rejects other ports of a ClusterIP anyway
					nftables.AddRejectElement(n, svc, k.at)
				}
			})
		},
	})
}

func isClusterIP(svc *plan.ServicePort, a netip.Addr) bool {
	return slices.ContainsFunc(svc.Frontends,
		func(f plan.Frontend) bool { return f.Kind == plan.ClusterIP && f.Addr == a })
}
