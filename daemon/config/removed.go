package config

import (
	"fmt"
	"strings"
)

// removed maps each key of an earlier version to its replacement. A removed key never prevents the daemon from
// starting, because a host must keep working after an unattended upgrade and the next reboot.
var removed = map[string]string{
	"source.lastknown.enabled": "the state is always kept, in source.lastknown.directory",

	"conntrack.cleanup":                 "flows to endpoints that are gone are always deleted",
	"conntrack.min":                     "nf_conntrack_max is at least 131072" + sysctls,
	"conntrack.tcp_established_timeout": "the kernel's time" + sysctls,
	"conntrack.tcp_close_wait_timeout":  "the kernel's time" + sysctls,
	"conntrack.udp_timeout":             "the kernel's time" + sysctls,
	"conntrack.udp_stream_timeout":      "the kernel's time" + sysctls,
	"conntrack.tcp_be_liberal":          "the kernel's setting" + sysctls,

	"fastpath.after_packets":    "a connection leaves the rules once it was answered",
	"fastpath.devices":          "all network devices take part",
	"fastpath.exclude":          "all network devices take part",
	"fastpath.hardware_offload": "the kernel forwards, not the network devices",

	"checks.tcp.timeout": "an endpoint has half of checks.tcp.interval to answer, and at most 5s",
	"checks.tcp.passes":  "two answers in a row",

	"proxy.max_service_endpoints":     budget,
	"proxy.max_service_frontends":     budget,
	"proxy.max_service_source_ranges": budget,
	"nftables.netlink":                "Edgeway always writes elements by netlink",

	"proxy.min_sync_period":  "the pause after a sync is as long as that sync, 1ms to 1s",
	"proxy.full_sync_period": "Edgeway compares the kernel with the plan every hour, and at once when rules are lost",
}

const budget = "the memory limit (MemoryMax= of edgeway.service) bounds all Services together, and the biggest beyond it are left out"

const sysctls = "; hosts.md in the package's documentation shows how to change it with sysctl.d"

// Removed is a removed key that a file sets, with its position and its replacement.
type Removed struct {
	File        string
	Line        int
	Key         string
	Replacement string
}

// String returns "file:line: key: removed and ignored: replacement".
func (r Removed) String() string {
	return fmt.Sprintf("%s:%d: %s: removed and ignored: %s", r.File, r.Line, r.Key, r.Replacement)
}

// isRemovedSection reports whether any key was removed from the table with the given name.
func isRemovedSection(name string) bool {
	for key := range removed {
		if strings.HasPrefix(key, name+".") {
			return true
		}
	}
	return false
}
