package conntrack

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

const (
	// minEntries and maxEntries are kube-proxy's bounds for the computed limit.
	minEntries, maxEntries = 1 << 17, 1 << 20
	// entriesPerBucket is the ratio of the limit to the number of hash buckets in kube-proxy and in the kernel's
	// documentation (nf_conntrack-sysctl).
	entriesPerBucket = 4
)

// The paths are relative to the root directory. A process with CAP_NET_ADMIN may write both network sysctls without
// being root. (The size of the hash table is also a module parameter, which only root may read.)
const (
	maxFile  = "proc/sys/net/netfilter/nf_conntrack_max"
	hashFile = "proc/sys/net/netfilter/nf_conntrack_buckets"
)

// RaiseMax raises the kernel's limit of connection-tracking entries to maxPerCore for each processor, at least 131,072
// and at most 1,048,576. RaiseMax never lowers the limit, and does nothing if maxPerCore is 0. An error is not fatal,
// because Services also work with the kernel's limit (a container may not be allowed to write the sysctls).
func RaiseMax(maxPerCore int, logger *slog.Logger) error {
	return raiseMax("/", maxPerCore, runtime.NumCPU(), logger)
}

func raiseMax(root string, maxPerCore, cores int, logger *slog.Logger) error {
	if maxPerCore == 0 {
		return nil
	}
	t := tuner{root: root, logger: logger}
	want := min(max(maxPerCore*cores, minEntries), maxEntries)
	if now, ok := t.get(maxFile); ok && now < want {
		// The hash table is resized first, because a higher limit with the old size causes long hash chains.
		if now, ok := t.get(hashFile); ok && now < want/entriesPerBucket {
			t.set(hashFile, want/entriesPerBucket)
		}
		t.set(maxFile, want)
	}
	return errors.Join(t.errs...)
}

// tuner collects errors, so that a failure to write one file does not prevent the change of the other file.
type tuner struct {
	root   string
	logger *slog.Logger
	errs   []error
}

func (t *tuner) get(file string) (int, bool) {
	path := filepath.Join(t.root, file)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.fail("read", path, err)
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(raw)))
	if err != nil {
		t.fail("read", path, err)
		return 0, false
	}
	return n, true
}

// set writes a file only if the value differs, because the file may be read-only.
func (t *tuner) set(file string, value int) {
	now, ok := t.get(file)
	if !ok || now == value {
		return
	}
	path := filepath.Join(t.root, file)
	if err := os.WriteFile(path, []byte(strconv.Itoa(value)), 0); err != nil {
		t.fail("write", path, err)
		return
	}
	t.logger.Info("kernel setting changed", "file", path, "from", now, "to", value)
}

func (t *tuner) fail(verb, path string, err error) {
	var named *fs.PathError
	if errors.As(err, &named) {
		err = named.Err
	}
	t.errs = append(t.errs, fmt.Errorf("%s %s: %w", verb, path, err))
}
