package conntrack

import (
	"net/netip"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/internal/sysctl"
)

// flowsPerWalk is the number of flows that the kernel can dump in the time that one walk over the hash table takes,
// about 10 ms (Linux 6.18, 262,144 buckets). Every dump walks the whole hash table, even a dump with a filter.
const flowsPerWalk = 2000

// countFile contains the number of flows in the network namespace of the process that opens the file.
const countFile = "/proc/sys/net/netfilter/nf_conntrack_count"

// deleteStale deletes stale flows and returns how many it deleted.
func deleteStale(t *netlink.Conntrack, s netlink.Scope, rules map[netip.AddrPort]rule) (int, error) {
	var stale []*netlink.Flow
	collect := func(f *netlink.Flow) {
		if r, ok := rules[f.Orig.Dst]; ok && r.stale(f) {
			stale = append(stale, f)
		}
	}
	flows, _ := sysctl.Int(countFile) // 0 if the number is unknown
	if len(rules) > 1 && flows <= flowsPerWalk*(len(rules)-1) {
		if err := t.Dump(s, netip.AddrPort{}, collect); err != nil {
			return 0, err
		}
	} else {
		for dst := range rules {
			if err := t.Dump(s, dst, collect); err != nil {
				return 0, err
			}
		}
	}
	deleted := 0
	for _, f := range stale {
		ok, err := t.Delete(s, f)
		if err != nil {
			return deleted, err
		}
		if ok {
			deleted++
		}
	}
	return deleted, nil
}
