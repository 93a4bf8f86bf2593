package ebpf

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// tcRate is the number of connections that the tc program may start per second on each processor. If a firewall drops a
// SYN after the program has added the entry, the entry stays for 120 s. So at most 24,000 such entries exist for each
// processor. nftables forwards the connections above the limit.
const tcRate = 200

// limitPackets updates the flags of the tc program. After an error, limitPackets stops the tc program, and a later call
// of damage starts the program again.
func (s *shortcuts) limitPackets() {
	flags, err := tcFlags(s.trackingFull)
	if err == nil && flags == s.config.Flags {
		return
	}
	if s.config.Flags = flags; err != nil {
		s.config.Packets = 0
	}
	s.doWithout(errors.Join(err, s.configure(s.config)))
}

// tcFlags returns the flags of the tc program that depend on the state of the host.
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

// halfFull reports whether connection tracking uses more than half of its maximum number of entries in the calling
// thread's network namespace.
func halfFull() (bool, error) {
	var n [2]int
	for i, name := range []string{"nf_conntrack_count", "nf_conntrack_max"} {
		text, err := os.ReadFile("/proc/sys/net/netfilter/" + name)
		if err == nil {
			n[i], err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		if err != nil {
			return false, fmt.Errorf("size of connection tracking: %w", err)
		}
	}
	return n[1] > 0 && n[0] > n[1]/2, nil // a maximum of 0 means that there is no limit
}

// routesByMark reports whether a routing rule matches on a packet mark.
func routesByMark() (bool, error) {
	rules, err := netlink.RuleList(netlink.FAMILY_ALL)
	if err != nil {
		return false, fmt.Errorf("list of routing rules: %w", err)
	}
	for _, r := range rules {
		if r.Mark != 0 || r.Mask != nil {
			return true, nil
		}
	}
	return false, nil
}
