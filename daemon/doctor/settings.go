package doctor

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// The files of the network namespace that the thread is in.
const (
	netFiles       = "/proc/thread-self/net/"
	conntrackFiles = "/proc/sys/net/netfilter/nf_conntrack_"
	filterKey      = "net.ipv4.conf.all.rp_filter"
)

// rpFilter tells of packets that the reverse path filter dropped: those that came in by another interface than the one
// by which this host would answer, as on a host with two networks.
func rpFilter(_ context.Context, h *Host) []fault.Fault {
	all, err := h.number(sysctlPath(filterKey))
	links, listErr := h.Links()
	if err != nil || listErr != nil {
		return nil
	}
	var strict []string
	for _, device := range links {
		path, _ := interfaceSetting(interfaces4, device, "rp_filter")
		// The larger value counts (Linux, ip-sysctl): 1 is strict, 2 is loose.
		if n, err := h.number(path); err == nil && max(n, all) == 1 {
			strict = append(strict, device)
		}
	}
	if len(strict) == 0 {
		return []fault.Fault{ok("rp_filter is strict on no interface")}
	}
	on := several(strict, maxNetworks)
	if n := h.counter("netstat", "TcpExt:", "IPReversePathFilter"); n > 0 {
		return []fault.Fault{warning(set(filterKey, 2),
			"rp_filter is strict on %s, and packets were dropped by it since the start: %d. Answers of endpoints, and clients, that come in by another interface than this host would answer by are lost", on, n)}
	}
	return []fault.Fault{ok("rp_filter is strict on %s, and has dropped nothing", on)}
}

// counter reads a file like proc_net_netstat: a line with the names after the heading, then one with the numbers.
func (h *Host) counter(file, heading, name string) int {
	text, _ := h.Read(netFiles + file) // without it nothing was counted
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

// How full the table of connections may be, in percent. New connections are dropped when it is full.
const (
	muchUsed   = 75
	nearlyFull = 95
)

// conntrack looks how full the table of connections is.
func conntrack(_ context.Context, h *Host) []fault.Fault {
	count, err := h.number(conntrackFiles + "count")
	limit, limitErr := h.number(conntrackFiles + "max")
	if err != nil || limitErr != nil || limit == 0 {
		return nil // not loaded, and so empty: the rules load it
	}
	fix := set("net.netfilter.nf_conntrack_max", 2*limit) +
		"  # to keep it, see conntrack.md in the package's documentation"
	percent := 100 * count / limit
	switch full := h.fullCount(); {
	case percent >= nearlyFull:
		return []fault.Fault{problem(fix,
			"the table of connections is full to %d %% (limit %d): new connections are dropped when it is full",
			percent, limit)}
	case percent >= muchUsed:
		return []fault.Fault{warning(fix, "the table of connections has %d entries, %d %% of its limit %d", count,
			percent, limit)}
	case full > 0:
		return []fault.Fault{warning(fix,
			"the table of connections has %d entries of %d now, but was full for %d new connections since the start",
			count, limit, full)}
	default:
		return []fault.Fault{ok("the table of connections has %d entries, the limit is %d", count, limit)}
	}
}

// fullCount adds up the column "drop" of all processors, in hexadecimal: entries that did not fit into the table.
func (h *Host) fullCount() (sum uint64) {
	text, _ := h.Read(netFiles + "stat/nf_conntrack") // without it nothing was counted
	column := -1
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if column < 0 {
			if column = slices.Index(fields, "drop"); column < 0 {
				return 0
			}
			continue
		}
		if column < len(fields) {
			n, _ := strconv.ParseUint(fields[column], 16, 64)
			sum += n
		}
	}
	return sum
}

// sysctls looks at settings that do harm here and there.
func sysctls(_ context.Context, h *Host) []fault.Fault {
	return append(h.ownPorts(), h.routeLocalnet()...)
}

// routeLocalnet finds interfaces by which packets to 127.0.0.1 come in. It is on where it is for all, or for the
// interface.
func (h *Host) routeLocalnet() (out []fault.Fault) {
	links, _ := h.Links() // without them there is what holds for all
	for _, device := range append([]string{"all"}, links...) {
		path, name := interfaceSetting(interfaces4, device, "route_localnet")
		if n, err := h.number(path); err == nil && n != 0 {
			out = append(out, warning(set(name, 0), "%s is %d: other hosts of a network can reach what listens on 127.0.0.1 (CVE-2020-8558); Edgeway does not need it", name, n))
		}
	}
	return shorten(out, len(out), "settings by which other hosts can reach 127.0.0.1")
}

// ownPorts finds ports that the daemon listens on in the range from which the kernel chooses the source ports of this
// host's connections. The daemon cannot listen on such a port while a connection has it.
func (h *Host) ownPorts() []fault.Fault {
	const local, reserved = "net.ipv4.ip_local_port_range", "net.ipv4.ip_local_reserved_ports"
	text, err := h.Read(sysctlPath(local))
	var first, last uint16
	if n, scanErr := fmt.Sscan(text, &first, &last); err != nil || n < 2 || scanErr != nil {
		return nil
	}
	taken, _ := h.Read(sysctlPath(reserved))
	var at []string
	for port := range h.listening() {
		if port >= first && port <= last && !contains(taken, port) {
			at = append(at, fmt.Sprint(port))
		}
	}
	if len(at) == 0 {
		return []fault.Fault{ok("the ports that the daemon listens on are not given to connections of this host (%d to %d)", first, last)}
	}
	slices.Sort(at)
	fix := set(reserved,
		strings.Join(append(strings.FieldsFunc(taken, func(r rune) bool { return r == ',' }), at...), ","))
	return []fault.Fault{warning(fix, "ports %s, which the daemon listens on for NodePorts on loopback and health checks, may be taken by connections of this host (%s)", several(at, maxNetworks), local)}
}

// contains reports whether a list like "80,30000-30100" has the port.
func contains(list string, port uint16) bool {
	for part := range strings.SplitSeq(list, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(part), "-")
		first, err := strconv.ParseUint(from, 10, 16)
		last := first
		if isRange {
			last, _ = strconv.ParseUint(to, 10, 16)
		}
		if err == nil && uint64(port) >= first && uint64(port) <= last {
			return true
		}
	}
	return false
}

// listening returns the ports that the daemon listens on for the plan: NodePorts on loopback, and the ports of health
// checks.
func (h *Host) listening() map[uint16]struct{} {
	out := map[uint16]struct{}{}
	for _, svc := range h.servicePorts() {
		for i := range svc.Frontends {
			f := &svc.Frontends[i]
			if _, relayed := svc.LoopbackPool(f); f.Kind != plan.NodePort || !relayed {
				continue
			}
			if slices.ContainsFunc(h.node().LoopbackAddrs,
				func(a netip.Addr) bool { return plan.FamilyOf(a) == svc.Family }) {
				out[f.Port] = struct{}{}
			}
		}
	}
	if h.Plan != nil && len(h.node().NodePortAddrs) > 0 {
		for _, c := range h.Plan.HealthChecks {
			out[c.Port] = struct{}{}
		}
	}
	return out
}
