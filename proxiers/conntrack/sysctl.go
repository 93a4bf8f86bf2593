package conntrack

import (
	"errors"
	"log/slog"
	"path/filepath"
	"runtime"

	"edgeway/proxiers/internal/sysctl"
)

const (
	// minEntries and maxEntries are kube-proxy's bounds for the computed nf_conntrack_max.
	minEntries, maxEntries = 1 << 17, 1 << 20
	// entriesPerBucket is the ratio of entries to hash buckets that kube-proxy and the kernel's documentation
	// (nf_conntrack-sysctl) use.
	entriesPerBucket = 4
)

// The paths of these sysctls are relative to the root directory. A process with CAP_NET_ADMIN may write both sysctls
// without being root. (The hash table size is also a module parameter, which only root may read.)
const (
	maxFile  = "proc/sys/net/netfilter/nf_conntrack_max"
	hashFile = "proc/sys/net/netfilter/nf_conntrack_buckets"
)

// RaiseMax raises the kernel's limit on connection-tracking entries to maxPerCore times the number of CPUs, but to at
// least 131,072 and at most 1,048,576. RaiseMax never lowers the limit. If maxPerCore is 0, RaiseMax does nothing. An
// error (for example in a container that cannot write the sysctls) is not fatal, because Services also work with the
// existing limit.
func RaiseMax(maxPerCore int, logger *slog.Logger) error {
	return raiseMax("/", maxPerCore, runtime.NumCPU(), logger)
}

func raiseMax(root string, maxPerCore, cores int, logger *slog.Logger) error {
	if maxPerCore == 0 {
		return nil
	}
	limit, buckets := filepath.Join(root, maxFile), filepath.Join(root, hashFile)
	want := min(max(maxPerCore*cores, minEntries), maxEntries)
	if now, err := sysctl.Int(limit); err != nil || now >= want {
		return err
	}
	// RaiseMax enlarges the hash table first, because a higher limit with a small hash table causes long hash chains.
	return errors.Join(raise(buckets, want/entriesPerBucket, logger), raise(limit, want, logger))
}

func raise(path string, want int, logger *slog.Logger) error {
	now, err := sysctl.Int(path)
	if err != nil || now >= want {
		return err
	}
	if err := sysctl.Set(path, want); err != nil {
		return err
	}
	logger.Info("kernel setting changed", "file", path, "from", now, "to", want)
	return nil
}
