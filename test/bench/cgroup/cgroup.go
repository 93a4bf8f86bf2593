// Package cgroup measures the CPU time of a program and its child processes, and can freeze all of these processes.
package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Group is a control group. A Group counts the CPU time of a program and its child processes in microseconds, and can
// freeze these processes. By comparison, /proc counts CPU time in clock ticks, and adds a child process's CPU time to
// its parent's only after the child exits.
type Group struct {
	path string // the path in the cgroup file system
}

// New creates a control group in the cgroup2 hierarchy, which may be mounted in addition to cgroup v1 hierarchies.
func New(name string) (*Group, error) {
	root, err := mountpoint()
	if err != nil {
		return nil, err
	}
	c := &Group{path: filepath.Join(root, name)}
	if err := os.Mkdir(c.path, 0o755); err != nil {
		return nil, fmt.Errorf("control group: %w", err)
	}
	return c, nil
}

// Path returns the path of the group's directory.
func (c *Group) Path() string { return c.path }

func mountpoint() (string, error) {
	f, err := os.Open("/proc/self/mounts")
	if err != nil {
		return "", fmt.Errorf("mounts: %w", err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) > 2 && fields[2] == "cgroup2" {
			return fields[1], nil
		}
	}
	return "", errors.New("no cgroup2 is mounted")
}

// Start starts a command in the group.
func (c *Group) Start(cmd *exec.Cmd) error {
	group, err := os.Open(c.path)
	if err != nil {
		return fmt.Errorf("control group: %w", err)
	}
	defer group.Close()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, UseCgroupFD: true, CgroupFD: int(group.Fd())}
	return cmd.Start()
}

// Processes returns the IDs of all processes in the group.
func (c *Group) Processes() ([]int, error) {
	raw, err := os.ReadFile(filepath.Join(c.path, "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("reading a control group's processes: %w", err)
	}
	var pids []int
	for _, word := range strings.Fields(string(raw)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			return nil, fmt.Errorf("reading a control group's processes: %w", err)
		}
		pids = append(pids, pid)
	}
	return pids, nil
}

// Kill kills all processes in the group and waits until they have exited. Kill does not use cgroup.kill, because on
// Linux 6.18, a write to cgroup.kill also kills processes that start in the group later.
func (c *Group) Kill() error {
	for until := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		left, err := c.Processes()
		if err != nil || len(left) == 0 {
			return err
		}
		if time.Now().After(until) {
			return fmt.Errorf("cannot kill the processes %v of a control group", left)
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// Close kills all processes in the group and removes the group.
func (c *Group) Close() {
	_ = c.Kill()
	// For a short time after the group's last process has exited, the kernel refuses to remove the group.
	for until := time.Now().Add(30 * time.Second); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if err := os.Remove(c.path); !errors.Is(err, syscall.EBUSY) {
			break
		}
	}
}

// CPU returns the CPU time that the group has used.
func (c *Group) CPU() (time.Duration, error) {
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
	return 0, errors.New("CPU time: cpu.stat contains no usage_usec")
}

// Freeze freezes all processes in the group if on is true, and resumes them otherwise.
func (c *Group) Freeze(on bool) error {
	value := "0"
	if on {
		value = "1"
	}
	if err := os.WriteFile(filepath.Join(c.path, "cgroup.freeze"), []byte(value), 0o644); err != nil {
		return fmt.Errorf("freezing: %w", err)
	}
	return nil
}

// WaitIdle waits until the group's CPU usage has stayed below 2 % of one CPU for the time given by quiet.
func (c *Group) WaitIdle(ctx context.Context, quiet time.Duration) error {
	const window = 250 * time.Millisecond
	before, err := c.CPU()
	if err != nil {
		return err
	}
	for still := time.Duration(0); still < quiet; {
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting until the program is idle: %w", ctx.Err())
		case <-time.After(window):
		}
		now, err := c.CPU()
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
