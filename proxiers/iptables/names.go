package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"slices"
	"strconv"
	"strings"

	"edgeway/proxiers/plan"
)

// The tables.
const (
	tableNAT    = "nat"
	tableFilter = "filter"
)

// tables in the order in which they are written. A new Service works as soon as nat has it: filter
// refuses only what nat leaves alone.
var tables = []string{tableNAT, tableFilter}

// Chains that exist whether there are Services or not.
const (
	chainServices     = "KUBE-SERVICES"
	chainExternal     = "KUBE-EXTERNAL-SERVICES"
	chainNodePorts    = "KUBE-NODEPORTS"
	chainFirewall     = "KUBE-PROXY-FIREWALL"
	chainForward      = "KUBE-FORWARD"
	chainPostrouting  = "KUBE-POSTROUTING"
	chainMarkMasq     = "KUBE-MARK-MASQ"
	chainLoopback     = "KUBE-LOOPBACK"
	chainLoopbackUDP  = "KUBE-LOOPBACK-UDP"
	chainLoopbackSCTP = "KUBE-LOOPBACK-SCTP"
)

// fixedChains are ours in any table; dispatch.go adds chains below KUBE-SERVICES and others: the name, a
// dash and hexadecimal digits.
var fixedChains = []string{
	chainServices, chainExternal, chainNodePorts, chainFirewall, chainForward, chainPostrouting, chainMarkMasq,
	chainLoopback, chainLoopbackUDP, chainLoopbackSCTP,
}

// servicePrefixes begin the names of chains that come and go with ServicePorts.
var servicePrefixes = []string{"KUBE-SVC-", "KUBE-SVL-", "KUBE-EXT-", "KUBE-FW-", "KUBE-SEP-"}

// owner is in the comment of each of our rules in a built-in chain. It tells chains of ours from
// those of a kube-proxy, whose names are the same.
const owner = "edgeway"

// ours says that a chain of this name in nat or filter is this backend's, or a kube-proxy's. The kubelet's
// chains (KUBE-FIREWALL, KUBE-KUBELET-CANARY) are not.
func ours(chain string) bool {
	if slices.Contains(fixedChains, chain) {
		return true
	}
	for _, p := range servicePrefixes {
		if strings.HasPrefix(chain, p) {
			return true
		}
	}
	i := strings.LastIndexByte(chain, '-')
	if i < 0 || !slices.Contains(fixedChains, chain[:i]) {
		return false
	}
	_, err := strconv.ParseUint(chain[i+1:], 16, 64)
	return err == nil
}

// hash makes a chain's name: 16 characters, as kube-proxy has them.
func hash(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "")))
	return base32.StdEncoding.EncodeToString(sum[:])[:16]
}

// servicePortHash is kube-proxy's own for the same ServicePort: of its name and protocol.
func servicePortHash(n plan.ServicePortName) string {
	return hash(label(n), protocolName(n.Protocol))
}

func protocolName(p plan.Protocol) string { return strings.ToLower(p.String()) }
