package doctor

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"edgeway/proxiers/fault"
)

// /proc/thread-self/net shows the network namespace of the calling thread.
const (
	netFiles       = "/proc/thread-self/net/"
	conntrackFiles = "/proc/sys/net/netfilter/nf_conntrack_"
	filterKey      = "net.ipv4.conf.all.rp_filter"
	loose          = 2 // the kernel uses the larger of this value and the interface's value (Linux, ip-sysctl)
)

// checkRPFilter reports packets that the reverse path filter dropped. The filter drops a packet if the route back to
// its sender does not use the interface that received the packet, for example on a host with two networks. The daemon
// counts only packets that were dropped in the last few minutes.
func checkRPFilter(_ context.Context, h *Host) []fault.Fault {
	all, err := h.number(sysctlPath(filterKey))
	if err != nil {
		return nil
	}
	n := h.filtered() - h.previousDrops
	if n <= 0 {
		return []fault.Fault{ok("the reverse path filter has dropped no packets")}
	}
	if all == loose {
		return []fault.Fault{ok("no interface has a strict rp_filter")}
	}
	return []fault.Fault{fault.New("", fault.Notice, set(filterKey, loose),
		"the strict rp_filter has dropped %d packets because the best route to the sender "+
			"does not use the receiving interface: the packets may be replies from endpoints", n)}
}

func (h *Host) filtered() int { return h.readCounter("netstat", "TcpExt:", "IPReversePathFilter") }

// readCounter reads a counter from a file such as /proc/net/netstat, where a line of names precedes a line of numbers.
func (h *Host) readCounter(file, heading, name string) int {
	text, _ := h.Read(netFiles + file) // without the file, the counter is 0
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] != heading {
			continue
		}
		if at := slices.Index(names, name); at >= 0 && at < len(fields) {
			n, _ := strconv.Atoi(fields[at])
			return n
		}
		names = fields
	}
	return 0
}

// The kernel drops new connections when the connection-tracking table is full. The check reports a warning at
// warningPercent and a problem at problemPercent of the table's limit.
const (
	warningPercent = 75
	problemPercent = 95
)

func checkConntrack(_ context.Context, h *Host) []fault.Fault {
	count, err := h.number(conntrackFiles + "count")
	limit, limitErr := h.number(conntrackFiles + "max")
	if err != nil || limitErr != nil || limit == 0 {
		return nil // the kernel loads conntrack when a rule needs it
	}
	fix := set("net.netfilter.nf_conntrack_max", 2*limit) +
		"  # hosts.md describes how to make the value permanent"
	percent := 100 * count / limit
	switch {
	case percent >= problemPercent:
		return []fault.Fault{problem(fix,
			"the connection tracking table is %d %% full (limit %d): at the limit, the kernel drops new connections",
			percent, limit)}
	case percent >= warningPercent:
		return []fault.Fault{warning(fix,
			"the connection tracking table has %d entries, %d %% of its limit of %d", count, percent, limit)}
	default:
		return []fault.Fault{ok("the connection tracking table has %d entries; the limit is %d", count, limit)}
	}
}
