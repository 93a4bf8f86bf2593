package daemon

import (
	"bufio"
	"bytes"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"

	"edgeway/daemon/planner"
	"edgeway/proxiers"
)

// memoryShare is the part of a control group's memory, in percent, that Go's heap tries to keep to. The rest is for
// the programs that write rules, which are in the same group, and for the rules themselves, which the kernel accounts
// to it.
const memoryShare = 60

// limitMemory sets Go's memory limit from that of the daemon's control group, unless GOMEMLIMIT is set. Go (1.26)
// does so for processors, but not for memory.
func limitMemory(logger *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, ok := groupMemory("/proc/self/cgroup", "/sys/fs/cgroup"); ok {
		debug.SetMemoryLimit(limit / 100 * memoryShare)
		logger.Debug("memory limit follows the control group", "group_bytes", limit, "limit_bytes",
			limit/100*memoryShare)
	}
}

// idleMemory is the part of Go's memory limit for a daemon without Services.
const idleMemory = 32 << 20

// minBudget is the least budget, however little memory there is: 1,000 ordinary Services.
const minBudget = 4 << 20

// netlinkCost is the part of Go's memory limit for the parts of Services, where the backend writes by netlink. The
// limit itself is 60 % of the memory.
//
// Measured on linux/amd64 in a control group of 256 MB, with nftables: the daemon peaks at 97 MB with the 400,000
// endpoints x ports that it then serves of a million in 25 Services (160 bytes each), and at 87 to 94 MB with one
// Service of 20,000 ports, an address and an endpoint each (3 kB). The planner alone keeps 42 bytes of an endpoint, 200
// of an address and 600 of such a port. An element of a map of nftables takes 100 bytes of the kernel (Linux 6.18).
var netlinkCost = proxiers.Cost{Port: 1200, Address: 1000, Endpoint: 300}

// budget returns what Services may take of Go's memory limit. cost is the backend's, and may be zero.
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

// groupMemory returns the smallest limit of the process's control group and the groups above it. It reads control
// groups of version 2, and those of version 1 in a mount of their own.
func groupMemory(groups, root string) (limit int64, ok bool) {
	text, err := os.ReadFile(groups)
	if err != nil {
		return 0, false
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		// "0::/system.slice/edgeway.service", or "4:memory:/..." of version 1.
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
				if n, found := memoryFile(filepath.Join(dir, file)); found && (!ok || n < limit) {
					limit, ok = n, true
				}
			}
		}
	}
	return limit, ok
}

// unlimited is less than the limit of a version 1 group without a limit, and more memory than any machine has.
const unlimited = 1 << 50

// memoryFile reads one limit. The text "max" means that there is none.
func memoryFile(path string) (n int64, ok bool) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err = strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil && n > 0 && n < unlimited
}
