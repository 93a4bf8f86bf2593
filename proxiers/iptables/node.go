package iptables

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/sysctl"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

func chain(table, name string, rules ...string) xtables.Chain {
	return xtables.Chain{ChainID: xtables.ChainID{Table: table, Name: name}, Rules: rules}
}

// newConnectionMatch is a match that keeps packets of established connections out of the trees.
const newConnectionMatch = "-m conntrack --ctstate NEW"

// hooks returns the built-in chains with the rules that jump to Edgeway's chains, in order. External addresses come
// before ClusterIPs, because the last rule for ClusterIPs drops packets to unused addresses in a Service CIDR. The
// rules in INPUT and OUTPUT do not match packets from the daemon's own connections (see proxiers.OwnMark).
func hooks(masqueradeBit int) []xtables.Chain {
	notOwn := fmt.Sprintf("-m mark ! --mark 0x%[1]x/0x%[1]x", proxiers.OwnMark(masqueradeBit))
	services := comment(owner + ": Services")
	refused := func(which string) []string {
		return []string{
			rule(which, newConnectionMatch, comment(owner+": external addresses of Services"), jump(chainExternal)),
			rule(which, newConnectionMatch, comment(owner+": source ranges of load balancers"), jump(chainFirewall)),
			rule(which, newConnectionMatch, services, jump(chainServices)),
		}
	}
	forward := append(refused(""), rule(comment(owner+": connections of Services"), jump(chainForward)))
	return []xtables.Chain{
		chain(xtables.NAT, "PREROUTING", rule(services, jump(chainServices))),
		chain(xtables.NAT, "OUTPUT", rule(notOwn, services, jump(chainServices))),
		chain(xtables.NAT, "POSTROUTING", rule(comment(owner+": masquerade"), jump(chainPostrouting))),
		chain(xtables.Filter, "INPUT", refused(notOwn)...),
		chain(xtables.Filter, "FORWARD", forward...),
		chain(xtables.Filter, "OUTPUT", refused(notOwn)...),
	}
}

func builtin(chain string) bool {
	return slices.Contains([]string{"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}, chain)
}

func constants(masqueradeBit int, dropInvalid bool) []xtables.Chain {
	mark := fmt.Sprintf("0x%x", uint32(1)<<masqueradeBit)
	var forward []string
	if dropInvalid {
		// The kernel does not reverse the translation of a reply outside the TCP window, so the receiver responds with
		// a reset (kubernetes#74839).
		forward = append(forward, "-m conntrack --ctstate INVALID -j DROP")
	}
	forward = append(forward,
		"-m mark --mark "+mark+"/"+mark+" -j ACCEPT",
		"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	chains := []xtables.Chain{
		chain(xtables.NAT, chainMarkMasq, "-j MARK --or-mark "+mark),
		chain(xtables.NAT, chainPostrouting,
			"-m mark ! --mark "+mark+"/"+mark+" -j RETURN",
			"-j MARK --xor-mark "+mark,
			"-j MASQUERADE --random-fully"),
		chain(xtables.Filter, chainForward, forward...),
	}
	for _, proto := range plan.NotRelayedProtocols() {
		chains = append(chains,
			chain(xtables.Filter, notRelayedChain(proto), verdictRules("", plan.NotRelayedVerdict)...))
	}
	return chains
}

// acceptsOutOfWindow reports whether connection tracking accepts TCP packets outside the window.
func acceptsOutOfWindow() bool {
	n, _ := sysctl.Int("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal")
	return n == 1
}

// rendererFor returns a renderer for the ServicePorts of one family on the node.
func rendererFor(f plan.Family, n *plan.Node) *renderer {
	r := &renderer{
		family:   f,
		loopback: slices.ContainsFunc(n.LoopbackAddrs, func(a netip.Addr) bool { return plan.FamilyOf(a) == f }),
	}
	for _, p := range plan.FilterByFamily(n.PodSources, f) {
		r.pods = append(r.pods, source(p))
	}
	for _, pattern := range n.PodInterfaces {
		r.pods = append(r.pods, "-i "+strings.Replace(pattern, "*", "+", 1))
	}
	return r
}

func newTrees() []*tree {
	return []*tree{
		natServices:     newTree(xtables.NAT, chainServices),
		natNodePorts:    newTree(xtables.NAT, chainNodePorts),
		filterServices:  newTree(xtables.Filter, chainServices),
		filterExternal:  newTree(xtables.Filter, chainExternal),
		filterFirewall:  newTree(xtables.Filter, chainFirewall),
		filterNodePorts: newTree(xtables.Filter, chainNodePorts),
		filterLoopback:  newTree(xtables.Filter, chainLoopback),
	}
}

// addNodeRules adds the rules for health checks before the destinations' rules, and the rules for the node's addresses
// and Service CIDRs after them.
func addNodeRules(trees []*tree, f plan.Family, p *plan.Plan) {
	jumps := func(addrs []netip.Addr, to string) (rules []string) {
		for _, a := range addrs {
			if plan.FamilyOf(a) == f {
				rules = append(rules, rule(destination(a), jump(to)))
			}
		}
		return rules
	}
	nodePorts, loopback := jumps(p.Node.NodePortAddrs, chainNodePorts), jumps(p.Node.LoopbackAddrs, chainLoopback)
	var unallocated, health []string
	for _, cidr := range plan.FilterByFamily(p.Node.ServiceCIDRs, f) {
		unallocated = append(unallocated,
			verdictRules(rule("-d "+cidr.String(), "-m addrtype ! --dst-type LOCAL"), plan.UnallocatedVerdict)...)
	}
	for _, h := range p.HealthChecks {
		health = append(health,
			rule(matchPort(plan.TCP, h.Port), comment(h.Namespace+"/"+h.Name+" health check"), "-j ACCEPT"))
	}
	trees[natServices].surround(nil, nodePorts)
	trees[filterExternal].surround(nil, slices.Concat(nodePorts, loopback))
	trees[filterServices].surround(nil, unallocated)
	trees[filterNodePorts].surround(health, nil)
}
