package xtables

import (
	"errors"
	"io/fs"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/plan"
)

// NAT and Filter are the iptables tables that Edgeway uses. An Input contains nat before filter, because a new Service
// works as soon as the nat table contains its rules.
const (
	NAT    = "nat"
	Filter = "filter"
)

// allTables holds the names of the iptables tables. nftables tables with other names do not belong to iptables.
var allTables = []string{"raw", "mangle", NAT, Filter, "security"}

// Tables returns the iptables tables that exist. The error wraps fs.ErrPermission if this process may not list the
// tables.
func Tables(v Variant, f plan.Family) ([]string, error) {
	if v == Legacy {
		return legacyTables(f)
	}
	return nftTables(f)
}

// legacyTables reads the list of tables in the calling thread's network namespace. The list of tables does not exist
// until the kernel has loaded ip_tables. Only root may list the tables, and reading a table's rules needs CAP_NET_RAW.
func legacyTables(f plan.Family) ([]string, error) {
	name := map[plan.Family]string{plan.IPv4: "ip_tables_names", plan.IPv6: "ip6_tables_names"}[f]
	text, err := os.ReadFile("/proc/thread-self/net/" + name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil || len(text) == 0 {
		return nil, err
	}
	// The iptables-legacy programs query the kernel through a raw socket.
	raw, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return nil, os.NewSyscallError("raw socket", err)
	}
	_ = unix.Close(raw)
	return strings.Fields(string(text)), nil
}

// nftTables returns no tables if the kernel lacks nf_tables.
func nftTables(f plan.Family) ([]string, error) {
	c, err := netlink.Dial()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	var names []string
	err = c.EachTable(netlink.Family(f), func(family uint8, name string) {
		if family == netlink.Family(f) && slices.Contains(allTables, name) {
			names = append(names, name)
		}
	})
	return names, err
}
