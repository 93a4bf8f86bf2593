package proxiers

import (
	"os"

	"edgeway/proxiers/plan"
)

// KernelFamilies returns the address families that the kernel supports, IPv4 first. A kernel booted with ipv6.disable=1
// has no /proc/net/if_inet6 and rejects IPv6 rules.
func KernelFamilies() []plan.Family {
	if _, err := os.Stat("/proc/net/if_inet6"); err != nil {
		return []plan.Family{plan.IPv4}
	}
	return []plan.Family{plan.IPv4, plan.IPv6}
}
