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

// tables returns the tables in the order in which Edgeway writes them. A new Service works as soon as the nat table
// contains its rules, because the filter table only rejects packets that the nat table did not redirect.
func tables() []string { return []string{xtables.NAT, xtables.Filter} }

// The fixed chains exist even without Services.
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

// fixedChains holds the chains that belong to Edgeway in any table. A tree adds subchains to a fixed chain. A
// subchain's name consists of the fixed chain's name, a dash and hexadecimal digits.
var fixedChains = []string{
	chainServices, chainExternal, chainNodePorts, chainFirewall, chainForward, chainPostrouting, chainMarkMasq,
	chainLoopback, notRelayedChain(plan.UDP), notRelayedChain(plan.SCTP),
}

// notRelayedChain returns the name of the chain for NodePorts with a protocol that Edgeway does not relay on loopback.
func notRelayedChain(p plan.Protocol) string { return chainLoopback + "-" + p.String() }

// servicePrefixes holds the prefixes of ServicePort chain names.
var servicePrefixes = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"}

// owner is part of the comment on each Edgeway rule in a built-in chain. The comment distinguishes Edgeway's rules from
// kube-proxy's rules, which jump to chains with the same names.
const owner = "edgeway"

// isOwnChain reports whether a chain with the given name in the nat or filter table belongs to this backend or to
// kube-proxy. The result is false for the kubelet's chains (KUBE-FIREWALL, KUBE-KUBELET-CANARY).
func isOwnChain(chain string) bool {
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

// hash returns the 16-character hash in a chain name. For a ServicePort, the hash is the same as kube-proxy's.
func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "")))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

func protocolName(p plan.Protocol) string { return strings.ToLower(p.String()) }

// A rule consists of addresses, numbers, Edgeway's own names, and sanitized comments, so untrusted text cannot end a
// rule or begin another one.

func jump(to string) string { return "-j " + to }

func destination(a netip.Addr) string { return "-d " + netip.PrefixFrom(a, a.BitLen()).String() }

func source(p netip.Prefix) string { return "-s " + p.String() }

// matchPort returns a match for a destination port. The caller may append ":" and a number to match a range of ports.
func matchPort(p plan.Protocol, number uint16) string {
	name := protocolName(p)
	return fmt.Sprintf("-p %s -m %s --dport %d", name, name, number)
}

// dnat returns the DNAT target for an endpoint. iptables accepts a port in the target only with a match on the
// protocol.
func dnat(p plan.Protocol, to netip.AddrPort) string {
	return "-p " + protocolName(p) + " -j DNAT --to-destination " + to.String()
}

func rule(parts ...string) string {
	return strings.Join(slices.DeleteFunc(parts, func(p string) bool { return p == "" }), " ")
}

// maxComment is the size of an xt_comment (256 bytes) without the terminating null byte.
const maxComment = 255

func comment(text string) string {
	return `-m comment --comment "` + sanitize(text) + `"`
}

// sanitize replaces all characters except letters, digits and some punctuation. Kubernetes names contain no other
// characters.
func sanitize(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(" ./:-", r) {
			return r
		}
		return '_'
	}, s)
	return s[:min(len(s), maxComment)]
}

// label returns a ServicePort's name in the form that rules contain: "namespace/name:port".
func label(n plan.ServicePortName) string {
	return strings.TrimSuffix(n.Namespace+"/"+n.Name+":"+n.Port, ":")
}
