package daemon

import (
	"bufio"
	"bytes"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"edgeway/daemon/config"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/planner"
	"edgeway/daemon/source"
	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/proxiers/serviceroutes"
)

func plannerOptions(cfg *config.Config, families []plan.Family, held func() []source.Holding) planner.Options {
	return planner.Options{
		Node: cfg.Node, Proxy: cfg.Proxy, FastPath: cfg.FastPath, Families: families,
		OwnRoutes: cfg.Routes.Services != config.RoutesNever, OwnPorts: ownPorts(cfg), SavedOwners: held,
	}
}

// ownPorts maps the ports of the daemon's servers to the configuration keys that specify them. ownPorts includes
// servers that are not listening, because a reload may start a server after the first plan.
func ownPorts(cfg *config.Config) map[uint16]string {
	own := map[uint16]string{}
	for key, addr := range map[string]string{
		"health.address":  cfg.Health.Address,
		"metrics.address": cfg.Metrics.Address,
	} {
		if _, port, err := net.SplitHostPort(addr); err == nil {
			n, _ := strconv.ParseUint(port, 10, 16) // Load has validated the port
			own[uint16(n)] = key
		}
	}
	return own
}

// LoadConfig reads the configuration at path.
func LoadConfig(path string) (*config.Config, error) { return config.Load(path, Backends()) }

// hostOptions returns options that make the Watcher ignore the backends' routing tables, the routes to Services, and
// the addresses on kube-ipvs0. A kube-proxy that ran in ipvs mode leaves all Service addresses on kube-ipvs0.
func hostOptions(cfg *config.Config) nodeinfo.Options {
	return nodeinfo.Options{
		IgnoreDevices: []string{"kube-ipvs0"}, IgnoreTables: ignoredRouteTables(),
		Ranges: cfg.Proxy.ServiceCIDRs, IgnoreProtocol: serviceroutes.Protocol,
	}
}

// families returns the configured address families or, by default, the families that this host supports. Like
// kube-proxy, families excludes IPv6 if the kernel lacks IPv6 or if a sysctl disables IPv6 for all interfaces.
func families(cfg *config.Config) []plan.Family {
	if len(cfg.Proxy.IPFamilies) > 0 {
		return cfg.Proxy.IPFamilies
	}
	const allDisabled = "/proc/sys/net/ipv6/conf/all/disable_ipv6"
	disabled, err := os.ReadFile(allDisabled)
	if err != nil || strings.TrimSpace(string(disabled)) == "1" {
		return []plan.Family{plan.IPv4}
	}
	return []plan.Family{plan.IPv4, plan.IPv6}
}

// memoryShare is Go's memory limit as a percentage of the control group's memory limit. The remaining memory is for the
// programs that write rules and for the rules themselves, because the kernel charges both to the same control group.
const memoryShare = 60

// limitMemory sets Go's memory limit to memoryShare percent of the control group's limit, unless GOMEMLIMIT is set. Go
// 1.26 respects the control group's CPU limit but not its memory limit.
func limitMemory(logger *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, ok := groupMemory("/proc/self/cgroup", "/sys/fs/cgroup"); ok {
		debug.SetMemoryLimit(limit / 100 * memoryShare)
		logger.Debug("using the control group's memory limit", "group_bytes", limit,
			"limit_bytes", limit/100*memoryShare)
	}
}

// idleMemory is the number of bytes that a daemon without Services needs.
const idleMemory = 32 << 20

// minBudget is the smallest memory budget for Services, even on a host with very little memory. A budget of 4 MiB
// allows 1,000 ordinary Services.
const minBudget = 4 << 20

// netlinkCost is the number of bytes that each port, address and endpoint uses if the backend writes through netlink.
// This memory counts towards Go's memory limit, which is 60 % of the control group's memory limit.
//
// The costs were measured with nftables on linux/amd64, in a control group limited to 256 MB. Of a million
// endpoint-port pairs in 25 Services, the daemon serves 400,000 (160 bytes each) in at most 97 MB. With one Service
// that has 20,000 ports, each with an address and an endpoint (3 kB), the daemon's memory use peaks at 87 to 94 MB. The
// planner itself uses 42 bytes per endpoint, 200 per address, and 600 per port with an address and an endpoint. An
// nftables map element occupies 100 bytes of kernel memory (Linux 6.18).
var netlinkCost = proxiers.Cost{Port: 1200, Address: 1000, Endpoint: 300}

// budget returns the memory that Services may use within Go's memory limit. If cost is zero, budget uses netlinkCost.
func budget(limit int64, cost proxiers.Cost) planner.Budget {
	if cost == (proxiers.Cost{}) {
		cost = netlinkCost
	}
	out := planner.Budget{Port: cost.Port, Address: cost.Address, Endpoint: cost.Endpoint}
	if limit < math.MaxInt64 {
		out.Limit = max(minBudget, limit-idleMemory)
	}
	return out
}

// groupMemory returns the lowest memory limit of the process's control group and its ancestors. groupMemory supports
// cgroup v2 and separately mounted cgroup v1 hierarchies.
func groupMemory(groups, root string) (limit int64, ok bool) {
	text, err := os.ReadFile(groups)
	if err != nil {
		return 0, false
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		// A line of /proc/self/cgroup is "0::/system.slice/edgeway.service" in cgroup v2, or "4:memory:/..." in cgroup
		// v1.
		parts := strings.SplitN(lines.Text(), ":", 3)
		if len(parts) != 3 {
			continue
		}
		top, files := root, []string{"memory.max", "memory.high"}
		switch parts[1] {
		case "":
		case "memory":
			top, files = filepath.Join(root, "memory"), []string{"memory.limit_in_bytes"}
		default:
			continue
		}
		for dir := filepath.Join(top, parts[2]); strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {
			for _, file := range files {
				if n, found := readMemoryLimit(filepath.Join(dir, file)); found && (!ok || n < limit) {
					limit, ok = n, true
				}
			}
		}
	}
	return limit, ok
}

// unlimitedThreshold is larger than the memory of any machine, and smaller than the value that cgroup v1 reports if
// there is no limit.
const unlimitedThreshold = 1 << 50

// readMemoryLimit reads a memory limit from a file. If the file contains "max", there is no limit.
func readMemoryLimit(path string) (n int64, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n > 0 && n < unlimitedThreshold
}
