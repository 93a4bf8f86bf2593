package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// cgroup is a control group. It counts the CPU time of a program and of all that it starts, to the
// microsecond (/proc counts a child only when it has ended, and in ticks), and the kernel memory that
// they caused, and can freeze them all.
type cgroup struct {
	// path is the group in the hierarchy of version 2, memory the one that has the memory controller:
	// the same, or on hosts that use both versions one of version 1.
	path, memory string
}

// newCgroup makes a control group. cgroup2 may be the only hierarchy or stand beside version 1.
func newCgroup(name string) (*cgroup, error) {
	root, err := mountPoint("cgroup2", "")
	if err != nil {
		return nil, err
	}
	// Some init systems delegate no controller; where memory is of version 1 this fails.
	_ = os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+memory"), 0o644)
	c := &cgroup{path: filepath.Join(root, name)}
	if err := os.Mkdir(c.path, 0o755); err != nil {
		return nil, fmt.Errorf("control group: %w", err)
	}
	c.memory = c.path
	if _, err := os.Stat(filepath.Join(c.path, "memory.stat")); err == nil {
		return c, nil
	}
	if root, err = mountPoint("cgroup", "memory"); err != nil {
		c.close()
		return nil, err
	}
	c.memory = filepath.Join(root, name)
	if err := os.Mkdir(c.memory, 0o755); err != nil {
		c.close()
		return nil, fmt.Errorf("control group: %w", err)
	}
	return c, nil
}

// mountPoint finds a mounted file system by its type and, if not empty, one of its options.
func mountPoint(kind, option string) (string, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return "", fmt.Errorf("mounts: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || fields[2] != kind {
			continue
		}
		if option == "" || slices.Contains(strings.Split(fields[3], ","), option) {
			return fields[1], nil
		}
	}
	return "", fmt.Errorf("no %s %s is mounted", kind, option)
}

// join puts a process that was started in the group into the hierarchy of version 1 as well.
func (c *cgroup) join(pid int) error {
	if c.memory == c.path {
		return nil
	}
	if err := os.WriteFile(filepath.Join(c.memory, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o644); err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	return nil
}

// kernel is the kernel memory in bytes that processes of the group caused and that is not free yet,
// rules of nftables included (since Linux 5.18), which outlive their process. Hash tables that the
// kernel enlarges in the background are not in it: 8 to 16 bytes for each element of a set.
func (c *cgroup) kernel() (float64, error) {
	if c.memory != c.path {
		raw, err := os.ReadFile(filepath.Join(c.memory, "memory.kmem.usage_in_bytes"))
		if err != nil {
			return 0, fmt.Errorf("kernel memory: %w", err)
		}
		return strconv.ParseFloat(strings.TrimSpace(string(raw)), 64)
	}
	raw, err := os.ReadFile(filepath.Join(c.memory, "memory.stat"))
	if err != nil {
		return 0, fmt.Errorf("kernel memory: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, "kernel "); ok {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, errors.New("kernel memory: memory.stat does not have it (needs Linux 5.18)")
}

// close kills what is left in the group (needs Linux 5.14) and removes it.
func (c *cgroup) close() {
	_ = os.WriteFile(filepath.Join(c.path, "cgroup.kill"), []byte("1"), 0o644)
	for _, dir := range []string{c.path, c.memory} {
		// A killed process leaves its group a moment later.
		for range 100 {
			if err := os.Remove(dir); !errors.Is(err, syscall.EBUSY) {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// cpu is the CPU time used so far.
func (c *cgroup) cpu() (time.Duration, error) {
	raw, err := os.ReadFile(filepath.Join(c.path, "cpu.stat"))
	if err != nil {
		return 0, fmt.Errorf("CPU time: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		if value, ok := strings.CutPrefix(line, "usage_usec "); ok {
			usec, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
			return time.Duration(usec) * time.Microsecond, err
		}
	}
	return 0, errors.New("CPU time: no usage_usec in cpu.stat")
}

// freeze stops or resumes all processes of the group.
func (c *cgroup) freeze(on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	if err := os.WriteFile(filepath.Join(c.path, "cgroup.freeze"), []byte(value), 0o644); err != nil {
		return fmt.Errorf("freezing: %w", err)
	}
	return nil
}

// settle waits until the group used less than 2 % of a CPU for the whole of quiet.
func (c *cgroup) settle(ctx context.Context, quiet time.Duration) error {
	const window = 250 * time.Millisecond
	before, err := c.cpu()
	if err != nil {
		return err
	}
	for still := time.Duration(0); still < quiet; {
		if err := sleep(ctx, window); err != nil {
			return fmt.Errorf("wait for a quiet program: %w", err)
		}
		now, err := c.cpu()
		if err != nil {
			return err
		}
		still += window
		if now-before > window/50 {
			still = 0
		}
		before = now
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
