package config

import (
	"fmt"
	"strings"
)

// removedKeys maps each key that Edgeway no longer supports to its replacement. A removed key never prevents the daemon
// from starting, because a host must keep working after an unattended upgrade and the next reboot.
var removedKeys = map[string]string{
	"source.lastknown.enabled": "Edgeway always stores the last-known state, in " +
		"source.lastknown.directory",

	"conntrack.cleanup":                 "Edgeway always deletes flows to removed endpoints",
	"conntrack.min":                     "by default, nf_conntrack_max is at least 131072" + sysctls,
	"conntrack.tcp_established_timeout": "the kernel's timeout applies" + sysctls,
	"conntrack.tcp_close_wait_timeout":  "the kernel's timeout applies" + sysctls,
	"conntrack.udp_timeout":             "the kernel's timeout applies" + sysctls,
	"conntrack.udp_stream_timeout":      "the kernel's timeout applies" + sysctls,
	"conntrack.tcp_be_liberal":          "the kernel's setting applies" + sysctls,

	"fastpath.after_packets":    "a connection enters the fast path after its first reply",
	"fastpath.devices":          "the fast path uses all network devices",
	"fastpath.exclude":          "the fast path uses all network devices",
	"fastpath.hardware_offload": "the kernel forwards packets without hardware offload",

	"checks.tcp.timeout": "an endpoint must accept a connection within half of checks.tcp.interval, " +
		"but at most 5s",
	"checks.tcp.passes": "an endpoint gets new connections after two consecutive successful checks",

	"proxy.max_service_endpoints":     budget,
	"proxy.max_service_frontends":     budget,
	"proxy.max_service_source_ranges": budget,
	"nftables.netlink":                "Edgeway always writes set and map elements over netlink",

	"proxy.min_sync_period": "the pause after a sync is as long as the sync, but at least 1ms and at most 1s",
	"proxy.full_sync_period": "Edgeway runs a full sync every hour, and immediately when another " +
		"program changes Edgeway's rules",
}

const budget = "MemoryMax= in edgeway.service limits the total size of all Services; above " +
	"the limit, Edgeway does not serve the largest Services"

const sysctls = "; hosts.md in the package's documentation shows how to change kernel settings with sysctl.d"

// RemovedKey is a removed key that a file sets, with its position and its replacement.
type RemovedKey struct {
	File        string
	Line        int
	Key         string
	Replacement string
}

// String returns "file:line: key: this key was removed and has no effect: replacement".
func (r RemovedKey) String() string {
	return fmt.Sprintf("%s:%d: %s: this key was removed and has no effect: %s", r.File, r.Line, r.Key,
		r.Replacement)
}

// hasRemovedKeys reports whether a removed key belongs to the TOML table called name.
func hasRemovedKeys(name string) bool {
	for key := range removedKeys {
		if strings.HasPrefix(key, name+".") {
			return true
		}
	}
	return false
}
