// Package iptables is the backend for both implementations of iptables: iptables-nft and iptables-legacy. The backend's
// chains have the same names as kube-proxy's chains (KEP-3453), because operators and tools know these names. Package
// xtables runs the programs, and package watch detects changes by other programs.
//
// In each family, the nat table chooses the endpoint, and the filter table rejects or drops packets that the nat table
// did not redirect. In both tables, KUBE-SERVICES and KUBE-NODEPORTS jump to the ServicePorts' chains. If there are
// many rules, the backend splits the two chains into trees (see dispatch.go), so a packet does not have to traverse all
// rules, and a change does not have to rewrite them.
//
// The names of a ServicePort's chains contain a hash of the ServicePort's name:
//
//   - KUBE-SVC-… chooses one of the cluster pool's endpoints, randomly or by session affinity.
//   - KUBE-SVL-… chooses one of the local pool's endpoints in the same way.
//   - KUBE-EXT-… distinguishes connections from pods, the host and others, and masquerades.
//   - KUBE-FW-… implements loadBalancerSourceRanges.
//   - KUBE-SEP-… contains the rules for one endpoint that needs more than one rule, for hairpin or session affinity.
//
// If an endpoint needs only one rule, the DNAT rule is in the KUBE-SVC-… or KUBE-SVL-… chain itself. A chain for every
// endpoint would make iptables-nft 1.8.9 take ten times as long to write 5,000 Services with 5 endpoints each. Such
// chains would also triple the number of entries in an iptables-legacy table, and every change copies all entries.
//
// Cleanup removes the backend's chains and the rules that jump to them. Like "iptables -F", Cleanup keeps the empty
// tables and built-in chains that iptables-nft created, because other programs may be about to use them.
package iptables

import (
	"context"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// Name is the configuration's name for the backend that uses the host's iptables variant. The names of the backends
// with a fixed variant begin with Name.
const Name = "iptables"

// Components returns the backend under its three names.
func Components() []proxiers.Component {
	list := []proxiers.Component{{
		Name: Name,
		Doc:  "iptables-nft or iptables-legacy, depending on this host's iptables program",
		Resolve: func(ctx context.Context) (string, error) {
			v, err := xtables.Choose(ctx)
			if err != nil {
				return "", err
			}
			return backendName(v), nil
		},
	}}
	for _, v := range xtables.Variants() {
		list = append(list, proxiers.Component{
			Name:  backendName(v),
			Doc:   "chains in the tables of " + backendName(v),
			Probe: func(ctx context.Context) error { return probe(ctx, v) },
			New: func(ctx context.Context, env proxiers.Env) (proxiers.Proxier, error) {
				return newProxier(ctx, v, env)
			},
			Cleanup: func(ctx context.Context, env proxiers.Env) error { return cleanup(ctx, v, env) },
			Gaps:    gaps,
			Traits: map[xtables.Variant]proxiers.Traits{
				xtables.NFT:    {SharedTables: sharedTables(), Cost: cost},
				xtables.Legacy: {DropIn: backendName(v) + ".conf", Cost: cost},
			}[v],
		})
	}
	return list
}

// cost estimates the memory that either iptables-nft-restore or iptables-legacy-restore uses. For an endpoint with a
// chain and three rules, iptables-nft-restore 1.8.9 uses 6.7 kB and iptables-legacy-restore uses 3.8 kB (with 20,000
// endpoints). A port needs one or two chains with one rule each, and an address needs one rule.
var cost = proxiers.Cost{Port: 4 << 10, Address: 2 << 10, Endpoint: 6 << 10}

// sharedTables returns the nftables tables that iptables-nft uses.
func sharedTables() (list []proxiers.SharedTable) {
	for _, family := range []string{"ip", "ip6"} {
		for _, table := range tables() {
			list = append(list, proxiers.SharedTable{Family: family, Name: table, Owns: isOwnChain})
		}
	}
	return list
}

func backendName(v xtables.Variant) string { return Name + "-" + string(v) }

func gaps(svc *plan.ServicePort) []proxiers.Gap {
	if svc.Affinity == 0 {
		return nil
	}
	return []proxiers.Gap{{
		Feature: "session affinity",
		Reason: "The xt_recent kernel module remembers at most 100 clients for each endpoint. " +
			"A new client then replaces the client that has been idle longest. " +
			"To raise the limit, load the module with a larger ip_list_tot.",
	}}
}
