package iptables

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"edgeway/proxiers/plan"
)

// hook is a built-in chain with our rules in it, in order.
type hook struct {
	table, chain string
	rules        []string
}

// newConnection keeps packets of established connections from walking through the trees.
const newConnection = "-m conntrack --ctstate NEW"

// hooks are how packets come to our chains. External addresses go before ClusterIPs, as the last rule of
// the latter drops what is in a Service CIDR.
func hooks() []hook {
	services := comment(owner + ": Services")
	refused := []string{
		rule(newConnection, comment(owner+": external addresses of Services"), jump(chainExternal)),
		rule(newConnection, comment(owner+": source ranges of load balancers"), jump(chainFirewall)),
		rule(newConnection, services, jump(chainServices)),
	}
	forward := append(slices.Clone(refused), rule(comment(owner+": connections of Services"), jump(chainForward)))
	return []hook{
		{tableNAT, "PREROUTING", []string{rule(services, jump(chainServices))}},
		{tableNAT, "OUTPUT", []string{rule(services, jump(chainServices))}},
		{tableNAT, "POSTROUTING", []string{rule(comment(owner+": masquerade"), jump(chainPostrouting))}},
		{tableFilter, "INPUT", refused},
		{tableFilter, "FORWARD", forward},
		{tableFilter, "OUTPUT", refused},
	}
}

// constants are the chains that depend on no plan.
func constants(masqueradeBit int, dropInvalid bool) []chain {
	mark := fmt.Sprintf("0x%x", uint32(1)<<masqueradeBit)
	var forward []string
	if dropInvalid {
		// A packet outside of the window is not translated back: its receiver would answer with a reset
		// (kubernetes#74839).
		forward = append(forward, "-m conntrack --ctstate INVALID -j DROP")
	}
	forward = append(forward,
		"-m mark --mark "+mark+"/"+mark+" -j ACCEPT",
		"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
	return []chain{
		{tableNAT, chainMarkMasq, []string{"-j MARK --or-mark " + mark}},
		{tableNAT, chainPostrouting, []string{
			"-m mark ! --mark " + mark + "/" + mark + " -j RETURN",
			"-j MARK --xor-mark " + mark,
			"-j MASQUERADE --random-fully",
		}},
		{tableFilter, chainForward, forward},
		{tableFilter, chainLoopbackUDP, []string{"-j REJECT"}},
		{tableFilter, chainLoopbackSCTP, []string{"-j REJECT"}},
	}
}

// liberal says that connection tracking finds no packet of a TCP connection invalid.
func liberal() bool {
	raw, err := os.ReadFile("/proc/sys/net/netfilter/nf_conntrack_tcp_be_liberal")
	return err == nil && strings.TrimSpace(string(raw)) == "1"
}

// newRenderer takes from the node what rules of ServicePorts need.
func rendererFor(f plan.Family, n *plan.Node) *renderer {
	r := &renderer{family: f, loopback: slices.ContainsFunc(n.LoopbackAddrs, func(a netip.Addr) bool { return plan.FamilyOf(a) == f })}
	for _, p := range ofFamily(n.PodSources, f) {
		r.pods = append(r.pods, source(p))
	}
	for _, pattern := range n.PodInterfaces {
		r.pods = append(r.pods, interfaceMatch(pattern))
	}
	return r
}

func (r *renderer) equal(o *renderer) bool {
	return r.family == o.family && r.loopback == o.loopback && slices.Equal(r.pods, o.pods)
}

// newTrees makes the empty trees, indexed by their constants.
func newTrees() []*tree {
	trees := make([]*tree, numTrees)
	trees[natServices] = newTree(tableNAT, chainServices)
	trees[natNodePorts] = newTree(tableNAT, chainNodePorts)
	trees[filterServices] = newTree(tableFilter, chainServices)
	trees[filterExternal] = newTree(tableFilter, chainExternal)
	trees[filterFirewall] = newTree(tableFilter, chainFirewall)
	trees[filterNodePorts] = newTree(tableFilter, chainNodePorts)
	trees[filterLoopback] = newTree(tableFilter, chainLoopback)
	return trees
}

// frame puts around the trees what the node and its health checks are.
func frame(trees []*tree, f plan.Family, p *plan.Plan) {
	var nodePorts, loopback, unallocated, health []string
	for _, a := range p.Node.NodePortAddrs {
		if plan.FamilyOf(a) == f {
			nodePorts = append(nodePorts, rule(destination(a), jump(chainNodePorts)))
		}
	}
	for _, a := range p.Node.LoopbackAddrs {
		if plan.FamilyOf(a) == f {
			loopback = append(loopback, rule(destination(a), jump(chainLoopback)))
		}
	}
	for _, cidr := range ofFamily(p.Node.ServiceCIDRs, f) {
		unallocated = append(unallocated, rule("-d "+cidr.Masked().String(), "-m addrtype ! --dst-type LOCAL -j DROP"))
	}
	for _, h := range p.HealthChecks {
		health = append(health, rule(port(plan.TCP, h.Port), comment(h.Namespace+"/"+h.Name+" health check"), "-j ACCEPT"))
	}
	trees[natServices].frame(nil, nodePorts)
	trees[filterExternal].frame(nil, slices.Concat(nodePorts, loopback))
	trees[filterServices].frame(nil, unallocated)
	trees[filterNodePorts].frame(health, nil)
}

func ofFamily(list []netip.Prefix, f plan.Family) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range list {
		if plan.FamilyOf(p.Addr()) == f {
			out = append(out, p)
		}
	}
	return out
}
