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
)

// memoryShare is the part of a control group's memory, in percent, that Go's heap tries to keep to. The rest is for the
// programs that write rules, which are in the same group, and for the rules themselves, which the kernel accounts to it.
const memoryShare = 60

// limitMemory sets Go's memory limit from that of the daemon's control group, unless GOMEMLIMIT is set. Go (1.26) does so
// for processors, but not for memory.
func limitMemory(logger *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	if limit, ok := groupMemory("/proc/self/cgroup", "/sys/fs/cgroup"); ok {
		debug.SetMemoryLimit(limit / 100 * memoryShare)
		logger.Debug("memory limit follows the control group", "group_bytes", limit, "limit_bytes", limit/100*memoryShare)
	}
}

// The parts of Go's memory limit for the daemon without Services, and for each element of them (planner.Options.Elements).
//
// Measured on linux/amd64 in a control group of 256 MB: the daemon peaks at 84 MB with 280,000 endpoints x ports in 7
// Services (190 bytes each), at 228 MB with a million in 25 Services, and at 86 MB with one Service of 20,000 ports, which
// is 120,000 elements (470 bytes each). A map of nftables takes 100 bytes of the kernel for each (Linux 6.18). 400 bytes of
// Go's limit are 670 bytes of the group.
const (
	idleMemory   = 32 << 20
	elementBytes = 400
)

// elements returns the number of elements of Services that Go's memory limit has room for, and 0 if there is no limit.
// each is what the backend takes for an element, or 0.
func elements(limit, each int64) int64 {
	if limit == math.MaxInt64 {
		return 0
	}
	return max(minElements, (limit-idleMemory)/max(each, elementBytes))
}

// minElements is the least number of elements that are served, however little memory there is.
const minElements = 10_000

// groupMemory returns the smallest limit of the process's control group and the groups above it. It reads control groups of
// version 2, and those of version 1 in a mount of their own.
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
