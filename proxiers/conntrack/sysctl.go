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
	"time"
)

// Settings are the kernel's limits for connection tracking. A zero leaves the kernel's value alone.
type Settings struct {
	// MaxPerCore is the number of entries to make room for, for each processor; at least Min, at
	// most 1,048,576. The limit is raised, never lowered.
	MaxPerCore, Min int
	// How long a silent flow is kept. Set as given, in whole seconds.
	TCPEstablished, TCPCloseWait, UDP, UDPStream time.Duration
	// TCPBeLiberal accepts TCP packets out of window.
	TCPBeLiberal bool
}

const (
	// maxEntries is kube-proxy's upper bound for a computed limit.
	maxEntries = 1 << 20
	// entriesPerBucket is the ratio that kube-proxy and the kernel's documentation
	// (nf_conntrack-sysctl) use between the limit and the size of the hash table.
	entriesPerBucket = 4
)

// The files, below the root. All are sysctls of the network, which CAP_NET_ADMIN alone may write: the
// daemon need not be root. (The table's size is also a parameter of the module, which only root reads.)
const (
	maxFile      = "proc/sys/net/netfilter/nf_conntrack_max"
	hashFile     = "proc/sys/net/netfilter/nf_conntrack_buckets"
	timeoutFiles = "proc/sys/net/netfilter/nf_conntrack_"
)

// ApplySysctls sets the kernel's limits to s. It tries every one: the error joins the
// failures, each naming its file. A failure is not fatal (a container may read but not write them):
// Services work with the kernel's own limits.
func ApplySysctls(s Settings, logger *slog.Logger) error {
	return applySysctls("/", s, runtime.NumCPU(), logger)
}

func applySysctls(root string, s Settings, cores int, logger *slog.Logger) error {
	t := tuner{root: root, logger: logger}
	t.raiseMax(s, cores)
	t.timeout("tcp_timeout_established", s.TCPEstablished)
	t.timeout("tcp_timeout_close_wait", s.TCPCloseWait)
	t.timeout("udp_timeout", s.UDP)
	t.timeout("udp_timeout_stream", s.UDPStream)
	if s.TCPBeLiberal {
		t.set(timeoutFiles+"tcp_be_liberal", 1)
	}
	return errors.Join(t.errs...)
}

// tuner collects the failures, so that one setting does not prevent the others.
type tuner struct {
	root   string
	logger *slog.Logger
	errs   []error
}

func (t *tuner) raiseMax(s Settings, cores int) {
	if s.MaxPerCore == 0 {
		return
	}
	want := min(max(s.MaxPerCore*cores, s.Min), max(maxEntries, s.Min))
	if now, ok := t.get(maxFile); !ok || now >= want {
		return
	}
	// The hash table first: a higher limit with the old table makes long chains.
	if now, ok := t.get(hashFile); ok && now < want/entriesPerBucket {
		t.set(hashFile, want/entriesPerBucket)
	}
	t.set(maxFile, want)
}

func (t *tuner) timeout(name string, d time.Duration) {
	if d > 0 {
		t.set(timeoutFiles+name, max(1, int(d.Seconds())))
	}
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

// set writes only what differs: a file that is right already may be read-only.
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
