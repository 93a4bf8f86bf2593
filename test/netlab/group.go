package netlab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"edgeway/test/bench/cgroup"
)

// group is the control group (version 2) of a host's process and of the programs on the host. The host's sockets belong
// to this group, so a socket hook that is attached to the group runs only for this host.
type group struct {
	*cgroup.Group
	dir *os.File
}

// makeGroup creates the host's control group. If makeGroup fails, for example in a container with a read-only
// /sys/fs/cgroup, it logs the reason, and the host shares the tests' control group. In continuous integration
// (CI=true), makeGroup returns an error instead.
func (h *Host) makeGroup() error {
	g, err := cgroup.New(h.lab.prefix + h.Name)
	if err == nil {
		h.group = &group{Group: g}
		h.group.dir, err = os.Open(g.Path())
	}
	if err != nil && os.Getenv("CI") != "true" {
		h.lab.t.Logf("lab: %s shares the tests' control group: %v", h.Name, err)
		return nil
	}
	return err
}

// Cgroup returns the path of the host's control group, or "" if the host shares the tests' control group.
func (h *Host) Cgroup() string {
	if h.group == nil {
		return ""
	}
	return h.group.Path()
}

// Sockets examines the TCP and UDP sockets in the host's namespace. It counts the sockets in the host's control group,
// and lists the sockets in other groups. The kernel does not report the control groups of raw sockets.
func (h *Host) Sockets(ctx context.Context) (own int, others []string, err error) {
	out, err := h.Command(ctx, "ss", "-H", "-t", "-u", "-a", "-n", "--cgroup").Output()
	if err != nil {
		return 0, nil, fmt.Errorf("sockets of %s: %w", h.Name, err)
	}
	for line := range strings.Lines(string(out)) {
		switch {
		case strings.HasSuffix(strings.TrimSpace(line), "cgroup:/"+filepath.Base(h.Cgroup())):
			own++
		case strings.Contains(line, "TIME-WAIT"), strings.Contains(line, "SYN-RECV"): // the kernel reports no group
		default:
			others = append(others, line)
		}
	}
	return own, others, nil
}

func (h *Host) inGroup() *syscall.SysProcAttr {
	if h.group == nil {
		return nil
	}
	return &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(h.group.dir.Fd())}
}

// enterGroup moves this process into the host's control group until the lab removes the host.
func (h *Host) enterGroup() error {
	if h.group == nil {
		return nil
	}
	raw, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	home := filepath.Dir(h.Cgroup())
	for line := range strings.Lines(string(raw)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			home = filepath.Join(home, path)
		}
	}
	h.leave = func() error { return moveTo(home) }
	return moveTo(h.Cgroup())
}

func moveTo(group string) error {
	err := os.WriteFile(filepath.Join(group, "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0)
	if err != nil {
		return fmt.Errorf("move to a control group: %w", err)
	}
	return nil
}

func (h *Host) removeGroup() error {
	if h.group == nil {
		return nil
	}
	err := h.group.dir.Close()
	h.group.Close()
	if _, stat := os.Stat(h.Cgroup()); errors.Is(stat, os.ErrNotExist) {
		return err
	}
	procs, _ := os.ReadFile(filepath.Join(h.Cgroup(), "cgroup.procs"))
	// Linux 5.10 sometimes refuses to remove a group that has neither processes nor child groups. A later lab tries to
	// remove the group again.
	if len(procs) == 0 && isLinux5() {
		h.lab.t.Logf("lab: the kernel refused to remove the empty control group %s", h.Cgroup())
		return err
	}
	return errors.Join(err, fmt.Errorf("control group %s still exists, with the processes %q", h.Cgroup(), procs))
}

func isLinux5() bool {
	var name unix.Utsname
	return unix.Uname(&name) == nil && name.Release[0] == '5' && name.Release[1] == '.'
}

func isStale(name string) bool {
	rest, ours := strings.CutPrefix(name, namePrefix)
	pid, err := strconv.Atoi(strings.SplitN(rest, "-", 2)[0])
	return ours && err == nil && unix.Kill(pid, 0) == unix.ESRCH
}

func removeStaleGroups(t testing.TB, beside string) {
	if beside == "" {
		return
	}
	entries, err := os.ReadDir(filepath.Dir(beside))
	if err != nil {
		t.Logf("lab: control groups: %v", err)
	}
	for _, e := range entries {
		if !isStale(e.Name()) {
			continue
		}
		// Another process may remove the control group at the same time.
		if err := os.Remove(filepath.Join(filepath.Dir(beside), e.Name())); err != nil &&
			!errors.Is(err, os.ErrNotExist) {
			t.Logf("lab: cannot remove the stale control group %s: %v", e.Name(), err)
		}
	}
}
