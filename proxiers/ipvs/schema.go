package ipvs

import (
	"net/netip"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers/internal/dispatch"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
)

const tableName = "edgeway-ipvs"

// servers is the set of the virtual servers' addresses and ports.
const servers = dispatch.OwnSets

// loopback stands for a frontend that is its own virtual server; see the package's comment.
var loopback = map[plan.Family]netip.Addr{plan.IPv4: netip.AddrFrom4([4]byte{127, 0, 0, 1}), plan.IPv6: netip.IPv6Loopback()}

// What comes before and after IPVS' hooks (Linux, ip_vs_core.c), which are 1 and 2 behind nat in output, and 2 and 1 before it in input.
const (
	beforeIPVS  = knftables.DNATPriority + "+1"
	afterOutput = knftables.DNATPriority + "+3"
	afterInput  = knftables.SNATPriority + "+1"
	beforeSNAT  = knftables.SNATPriority + "-10"
)

// schema describes the tables.
func schema(p *places) nfttable.Schema {
	const (
		three   = "meta l4proto { tcp, udp, sctp } "
		server  = three + "$ip daddr . meta l4proto . th dport @servers "
		restore = three + "$ip daddr $loopback ct status dnat ct original $ip daddr . meta l4proto . ct original proto-dst @servers $ip daddr set ct original $ip daddr"
		// unknown is a protocol number for experiments (RFC 3692).
		unknown = "253"
		// The host's own packets were routed before IPVS chose an endpoint that is the host itself. A change of the mark has the
		// kernel route them again; the next chain takes it back.
		reroute = `ct status dnat ct direction original oifname != "lo" fib daddr type local meta mark set meta mark xor 0x1`
	)
	rerouting := func(name string, priority knftables.BaseChainPriority) nfttable.Chain {
		return nfttable.Chain{Name: name, Type: knftables.RouteType, Hook: knftables.OutputHook, Priority: priority, Rules: []string{reroute}}
	}
	return dispatch.Schema(dispatch.Options{
		Table: tableName,
		To: func(svc *plan.ServicePort, f *plan.Frontend, pool plan.Pool) netip.AddrPort {
			at := p.of(svc, pool)
			if f.Kind != plan.NodePort && at == netip.AddrPortFrom(f.Addr, f.Port) {
				return netip.AddrPortFrom(loopback[svc.Family], f.Port)
			}
			return at
		},
		Sets: []nfttable.Set{{Name: "servers", Key: []nfttable.Field{nfttable.Addr, nfttable.Proto, nfttable.Port}}},
		Chains: []nfttable.Chain{
			dispatch.Hooked("restore-prerouting", knftables.PreroutingHook, beforeIPVS, restore),
			dispatch.Hooked("restore-output", knftables.OutputHook, beforeIPVS, restore, "meta mark and $own != 0 meta l4proto tcp $next set "+unknown),
			dispatch.Hooked("own-output", knftables.OutputHook, afterOutput, "meta mark and $own != 0 $next "+unknown+" $next set 6"),
			rerouting("reroute", knftables.DNATPriority+"+4"),
			rerouting("reroute-again", knftables.DNATPriority+"+5"),
		},
		Learn: []nfttable.Chain{
			// What IPVS has not taken, as when somebody has deleted the virtual server, must not come to the host's own programs.
			dispatch.Hooked("untaken-input", knftables.InputHook, afterInput, server+"reject", dispatch.LearnNew),
			dispatch.Hooked("untaken-postrouting", knftables.PostroutingHook, beforeSNAT, "meta mark and $own == 0 "+server+"drop", dispatch.LearnNew),
		},
		Service: func(n *nfttable.Needs, svc *plan.ServicePort) {
			p.keys(svc, func(k key, _ []plan.Endpoint) {
				n.Entry(servers, nfttable.Element{Family: svc.Family, Proto: k.proto, Addr: k.at.Addr(), Port: k.at.Port()}, nfttable.Value{})
				if !isFrontend(svc, k.at) {
					dispatch.Refuse(n, svc, k.at)
				}
			})
		},
	})
}

func isFrontend(svc *plan.ServicePort, at netip.AddrPort) bool {
	for i := range svc.Frontends {
		if f := &svc.Frontends[i]; f.Kind != plan.NodePort && at == netip.AddrPortFrom(f.Addr, f.Port) {
			return true
		}
	}
	return false
}
