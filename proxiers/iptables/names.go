package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// tables in the order in which they are written. A new Service works as soon as nat has it: filter
// refuses only what nat leaves alone.
func tables() []string { return []string{xtables.NAT, xtables.Filter} }

// Chains that exist whether there are Services or not.
const (
	chainServices    = "KUBE-SERVICES"
	chainExternal    = "KUBE-EXTERNAL-SERVICES"
	chainNodePorts   = "KUBE-NODEPORTS"
	chainFirewall    = "KUBE-PROXY-FIREWALL"
	chainForward     = "KUBE-FORWARD"
	chainPostrouting = "KUBE-POSTROUTING"
	chainMarkMasq    = "KUBE-MARK-MASQ"
	chainLoopback    = "KUBE-LOOPBACK"
)

// fixedChains are ours in any table; dispatch.go adds chains below KUBE-SERVICES and others: the name, a
// dash and hexadecimal digits.
var fixedChains = []string{
	chainServices, chainExternal, chainNodePorts, chainFirewall, chainForward, chainPostrouting, chainMarkMasq,
	chainLoopback, notRelayedChain(plan.UDP), notRelayedChain(plan.SCTP),
}

// notRelayedChain is for NodePorts of a protocol that has no relay on loopback.
func notRelayedChain(p plan.Protocol) string { return chainLoopback + "-" + p.String() }

// servicePrefixes begin the names of chains that come and go with ServicePorts.
var servicePrefixes = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"}

// owner is in the comment of each of our rules in a built-in chain. It tells chains of ours from
// those of a kube-proxy, whose names are the same.
const owner = "edgeway"

// ours says that a chain of this name in nat or filter is this backend's, or a kube-proxy's. The kubelet's
// chains (KUBE-FIREWALL, KUBE-KUBELET-CANARY) are not.
func ours(chain string) bool {
	if slices.Contains(fixedChains, chain) ||
		slices.ContainsFunc(servicePrefixes, func(p string) bool { return strings.HasPrefix(chain, p) }) {
		return true
	}
	i := strings.LastIndexByte(chain, '-')
	if i < 0 || !slices.Contains(fixedChains, chain[:i]) {
		return false
	}
	_, err := strconv.ParseUint(chain[i+1:], 16, 64)
	return err == nil
}

// hash makes a chain's name: 16 characters. Those of a ServicePort's name and protocol are kube-proxy's own.
func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "")))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

func protocolName(p plan.Protocol) string { return strings.ToLower(p.String()) }

// Rule texts are made of addresses, numbers, names of ours, and comments that safeText has seen:
// nothing from outside can end a rule or begin another.

func jump(to string) string { return "-j " + to }

func destination(a netip.Addr) string { return "-d " + netip.PrefixFrom(a, a.BitLen()).String() }

func source(p netip.Prefix) string { return "-s " + p.String() }

// port matches a destination port. With ":" and a number behind it it is a range.
func port(p plan.Protocol, number uint16) string {
	name := protocolName(p)
	return fmt.Sprintf("-p %s -m %s --dport %d", name, name, number)
}

// dnat sends to an endpoint. The protocol has to be named for the port's sake.
func dnat(p plan.Protocol, to netip.AddrPort) string {
	return "-p " + protocolName(p) + " -j DNAT --to-destination " + to.String()
}

// rule joins what is not empty.
func rule(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " ")
}

// maxComment is xt_comment's 256 bytes less the zero at the end.
const maxComment = 255

func comment(text string) string {
	return `-m comment --comment "` + safeText(text) + `"`
}

// safeText leaves letters, digits and a few signs. Kubernetes allows no others in names.
func safeText(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" ./:-", r) {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), maxComment)]
}

// label is how rules name a ServicePort: "namespace/name:port".
func label(n plan.ServicePortName) string {
	return strings.TrimSuffix(n.Namespace+"/"+n.Name+":"+n.Port, ":")
}
