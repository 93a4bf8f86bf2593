package netlab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/rpc"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

const (
	namePrefix = "netlab-" // each lab appends a process ID and a random number
	netnsDir   = "/run/netns"
)

// Host is a host in a Lab. A host has a network namespace, a control group, and a process that owns the host's sockets.
// The process starts when the host needs its first socket.
type Host struct {
	Name string
	// Addrs holds the IPv4 and IPv6 addresses that other hosts use to reach the host.
	Addrs []netip.Addr
	// Netns is the name of the network namespace for `ip netns exec`, or "" for the namespace of this process.
	Netns string

	lab   *Lab
	index int
	ns    netns.NsHandle
	link  *netlink.Handle

	group *group // nil if the host shares the tests' control group
	peer  func() (*rpc.Client, error)
	// stop stops the host's process, and leave moves the tests' process out of the host's control group. Both functions
	// may be nil.
	stop, leave func() error
}

// Addr returns the host's first address in the same address family as the given address.
func (h *Host) Addr(like netip.Addr) netip.Addr {
	for _, a := range h.Addrs {
		if a.Is4() == like.Is4() {
			return a
		}
	}
	return netip.Addr{}
}

// Has reports whether the host has the address a.
func (h *Host) Has(a netip.Addr) bool { return slices.Contains(h.Addrs, a) }

// Do calls fn on a thread in the host's namespace. Sockets and processes that fn creates are in the host's namespace,
// but not in the host's control group. Goroutines that fn starts are neither in the namespace nor in the control group.
func (h *Host) Do(fn func() error) error {
	if h.Netns == "" {
		return fn()
	}
	runtime.LockOSThread()
	home, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("own network namespace: %w", err)
	}
	defer func() { _ = home.Close() }()
	if err := netns.Set(h.ns); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("network namespace of %s: %w", h.Name, err)
	}
	// A thread that cannot return to its original namespace stays locked to the goroutine and exits with the goroutine.
	defer func() {
		if netns.Set(home) == nil {
			runtime.UnlockOSThread()
		}
	}()
	return fn()
}

// Command returns a command that runs in the host's namespace and control group. When ctx is done, os/exec kills the
// command. nsenter replaces itself with the program, so killing the command kills the program.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	if h.Netns == "" {
		return exec.CommandContext(ctx, name, args...)
	}
	path := filepath.Join(netnsDir, h.Netns)
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{"--net=" + path, "--", name}, args...)...)
	cmd.SysProcAttr = h.inGroup()
	return cmd
}

// Sysctl writes a setting below /proc/sys/net, as in Sysctl("ipv4/ip_forward", "1").
func (h *Host) Sysctl(name, value string) error {
	return h.Do(func() error {
		return os.WriteFile(filepath.Join("/proc/sys/net", name), []byte(value), 0)
	})
}

// FlushConntrack deletes all of the host's tracked connections.
func (h *Host) FlushConntrack() error { return h.link.ConntrackTableFlush(netlink.ConntrackTable) }

func (l *Lab) newHost(name string) (*Host, error) {
	h := &Host{Name: name, Netns: l.prefix + name, lab: l}
	h.peer = sync.OnceValues(h.startPeer)
	err := func() error {
		runtime.LockOSThread()
		home, err := netns.Get()
		if err != nil {
			return err
		}
		defer func() { _ = home.Close() }()
		if h.ns, err = netns.NewNamed(h.Netns); err != nil {
			return err
		}
		if err := netns.Set(home); err != nil {
			return err
		}
		runtime.UnlockOSThread()
		return nil
	}()
	if err != nil {
		return nil, fmt.Errorf("network namespace %s: %w", h.Netns, err)
	}
	l.mu.Lock()
	l.hosts = append(l.hosts, h)
	h.index = len(l.hosts)
	l.mu.Unlock()
	return h, errors.Join(h.makeGroup(), h.setUp())
}

func ownHost(name string, l *Lab) (*Host, error) {
	ns, err := netns.Get()
	if err != nil {
		return nil, err
	}
	h := &Host{Name: name, lab: l, ns: ns}
	h.peer = sync.OnceValues(h.startPeer)
	return h, nil
}

func (h *Host) setUp() error {
	var err error
	if h.link, err = netlink.NewHandleAt(h.ns); err != nil {
		return err
	}
	lo, err := h.link.LinkByName("lo")
	if err != nil {
		return err
	}
	for _, s := range [][2]string{
		{"ipv4/conf/all/rp_filter", "0"},
		{"ipv4/conf/default/rp_filter", "0"},
		// With the following settings, the host has only the addresses that the lab adds, uses new addresses
		// immediately, and ignores router advertisements.
		{"ipv6/conf/default/addr_gen_mode", "1"},
		{"ipv6/conf/default/accept_dad", "0"},
		{"ipv6/conf/default/accept_ra", "0"},
		// With the default settings, rate limits could suppress the ICMP error for a refused connection.
		{"ipv4/icmp_ratemask", "0"},
		{"ipv6/icmp/ratelimit", "0"},
		{"ipv6/icmp/ratemask", ""},
	} {
		if err := h.Sysctl(s[0], s[1]); err != nil {
			return err
		}
	}
	return h.link.LinkSetUp(lo)
}

func (h *Host) forward() error {
	return errors.Join(h.Sysctl("ipv4/ip_forward", "1"), h.Sysctl("ipv6/conf/all/forwarding", "1"))
}

func (h *Host) close() error {
	var errs []error
	for _, end := range []func() error{h.stop, h.leave} {
		if end != nil {
			errs = append(errs, end())
		}
	}
	errs = append(errs, h.removeGroup())
	if h.link != nil {
		if eth0, err := h.link.LinkByName("eth0"); err == nil && h.Netns != "" {
			errs = append(errs, h.link.LinkDel(eth0))
		}
		h.link.Close()
	}
	errs = append(errs, h.ns.Close())
	if h.Netns != "" {
		errs = append(errs, netns.DeleteNamed(h.Netns))
	}
	return errors.Join(errs...)
}

// removeStaleNamespaces removes the network namespaces of exited processes. For example, a process that is killed by
// SIGKILL leaves its namespace behind.
func removeStaleNamespaces(t testing.TB) {
	entries, err := os.ReadDir(netnsDir)
	if err != nil {
		return // no program has created a named namespace yet
	}
	for _, e := range entries {
		if !isStale(e.Name()) {
			continue
		}
		// Another process may remove the namespace at the same time.
		if err := netns.DeleteNamed(e.Name()); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Logf("lab: cannot remove the stale namespace %s: %v", e.Name(), err)
		}
	}
}
