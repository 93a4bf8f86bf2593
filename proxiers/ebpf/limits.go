package ebpf

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"

	"edgeway/proxiers/internal/sysctl"
)

// tcRate is the maximum number of new connections that the tc program handles per second on each CPU. If a firewall
// drops a SYN after the tc program has added a connection-tracking entry, the entry stays for 120 s. The table
// therefore holds at most 24,000 entries per CPU for dropped SYNs. nftables forwards connections above the limit.
const tcRate = 200

// updateTCFlags sets the tc program's flags to the result of tcFlags. After an error, updateTCFlags stops the tc
// program, and the damage method later starts the program again.
func (s *shortcuts) updateTCFlags() {
	flags, err := tcFlags(s.trackingFull)
	if err == nil && flags == s.config.Flags {
		return
	}
	if s.config.Flags = flags; err != nil {
		s.config.Packets = 0
	}
	s.setTCErr(errors.Join(err, s.configure(s.config)))
}

// tcFlags returns the tc program's flags, which depend on the connection-tracking table and the routing rules.
func tcFlags(trackingFull func() (bool, error)) (flags uint32, err error) {
	full, err := trackingFull()
	if err != nil {
		return 0, err
	}
	if full {
		flags |= trackingIsFull
	}
	marks, err := routesByMark()
	if err != nil {
		return 0, err
	}
	if marks {
		flags |= markRules
	}
	return flags, nil
}

// halfFull reports whether the connection-tracking table in the calling thread's network namespace is more than half
// full.
func halfFull() (bool, error) {
	entries, err := sysctl.Int("/proc/sys/net/netfilter/nf_conntrack_count")
	limit, limitErr := sysctl.Int("/proc/sys/net/netfilter/nf_conntrack_max")
	if err = errors.Join(err, limitErr); err != nil {
		return false, fmt.Errorf("read connection-tracking sizes: %w", err)
	}
	return limit > 0 && entries > limit/2, nil // a maximum of 0 means that there is no limit
}

// routesByMark reports whether any routing rule matches on the packet mark.
func routesByMark() (bool, error) {
	rules, err := netlink.RuleList(netlink.FAMILY_ALL)
	if err != nil {
		return false, fmt.Errorf("list routing rules: %w", err)
	}
	for _, r := range rules {
		if r.Mark != 0 || r.Mask != nil {
			return true, nil
		}
	}
	return false, nil
}
