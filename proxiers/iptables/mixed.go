package iptables

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// writers are the programs that are known by the names of their chains.
var writers = []struct{ prefix, name string }{
	{"DOCKER", "Docker"},
	{"KUBE-FIREWALL", "kubelet"},
	{"KUBE-KUBELET-", "kubelet"},
	{"KUBE-", "kube-proxy"},
	{"CNI-", "CNI plugins"},
	{"cali-", "Calico"},
	{"CILIUM_", "Cilium"},
	{"FLANNEL-", "flannel"},
	{"f2b-", "fail2ban"},
	{"ufw-", "ufw"},
	{"ufw6-", "ufw"},
	{"LIBVIRT_", "libvirt"},
	{"ts-", "Tailscale"},
}

// mixedHost says whether rules are present in both variants, and whose they are, in one sentence. Rules that
// this process may not read do not count, nor do our own in the variant that is not in force: they go when the
// backend has been switched.
func mixedHost(ctx context.Context, inForce variant) (string, bool) {
	var found []string
	for _, v := range variants {
		c, err := takeCensus(ctx, v)
		if v != inForce {
			c.own = 0
		}
		if err != nil || c.empty() {
			return "", false
		}
		found = append(found, fmt.Sprintf("iptables-%s (%s)", v, c))
	}
	return fmt.Sprintf("rules are present in both %s: a packet passes both sets, and either can drop it", strings.Join(found, " and ")), true
}

// String names who wrote the rules: "Docker, edgeway, 3 rules in INPUT".
func (c census) String() string {
	var names []string
	if c.own > 0 {
		names = append(names, owner)
	}
	for chain := range c.foreign {
		if name := writer(chain); name != "" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, chain := range sortedKeys(c.foreign, strings.Compare) {
		if writer(chain) == "" {
			names = append(names, countOf(c.foreign[chain], "rule")+" in "+chain)
		}
	}
	const most = 6
	if len(names) > most {
		names = append(names[:most], "and others")
	}
	return strings.Join(names, ", ")
}

func writer(chain string) string {
	for _, w := range writers {
		if strings.HasPrefix(chain, w.prefix) {
			return w.name
		}
	}
	return ""
}

func countOf(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
