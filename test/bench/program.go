package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/test/bench/cgroup"
	"edgeway/test/bench/kit"
)

// program is a service proxy under test on a host of its own.
type program struct {
	name string
	host *host
	// argv starts it; it was configured beforehand.
	argv []string
	env  []string // beside this process's
	dir  string
	log  string
	cg   *cgroup.Group
	cmd  *exec.Cmd // nil while it does not run
	// slack is what its unit adds to the kernel's timers; 0: the kernel's own.
	slack time.Duration
	// slow says that a first sync took longer than the bench has time for: there is no further one.
	slow bool
}

// memory is the directory of what a program remembers over restarts.
const memory = "lastknown"

// Both programs serve their metrics here, on the host alone. The gauge is set for each address family
// that was synced.
const (
	metricsURL = "http://127.0.0.1:10249/metrics"
	lastSynced = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
	families   = 2
)

// start runs the program and gives the moment before it was there.
func (p *program) start() (time.Time, error) {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return time.Time{}, fmt.Errorf("log of %s: %w", p.name, err)
	}
	defer out.Close()
	p.cmd = p.command(p.argv...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	began := time.Now()
	if err := withSlack(p.slack, func() error { return p.cg.Start(p.cmd) }); err != nil {
		return began, fmt.Errorf("start of %s: %w", p.name, err)
	}
	return began, nil
}

// withSlack runs start on a thread whose timer slack its children have, too.
func withSlack(slack time.Duration, start func() error) error {
	if slack == 0 {
		return start()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(slack.Nanoseconds()), 0, 0, 0); err != nil {
		return fmt.Errorf("timer slack: %w", err)
	}
	defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, 0, 0, 0, 0) }() // 0: what the thread began with
	return start()
}

// command is one that runs on the program's host: ip becomes it, so that it is the same process, with
// /sys of that namespace.
func (p *program) command(argv ...string) *exec.Cmd {
	cmd := exec.Command("ip", append([]string{"netns", "exec", p.host.netns}, argv...)...)
	cmd.Env = append(os.Environ(), p.env...)
	return cmd
}

// run runs a short command on the program's host.
func (p *program) run(argv ...string) error {
	if out, err := p.command(argv...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s on the host of %s: %w: %.500s", strings.Join(argv, " "), p.name, err, out)
	}
	return nil
}

// stop asks the program to end and waits for it. A program that does not run is left alone.
func (p *program) stop() error {
	if p.cmd == nil {
		return nil
	}
	defer func() { p.cmd = nil }()
	if err := p.cg.Freeze(false); err != nil {
		return err
	}
	if err := kit.Stop(p.cmd, 30*time.Second); err != nil {
		return fmt.Errorf("stop of %s: %w", p.name, err)
	}
	return nil
}

// forget removes what the program remembers on disk.
func (p *program) forget() error {
	if err := os.RemoveAll(p.file(memory)); err != nil {
		return fmt.Errorf("memory of %s: %w", p.name, err)
	}
	return nil
}

// close stops the program and removes its control group.
func (p *program) close() {
	_ = p.stop()
	p.cg.Close()
}

// resident is the program's resident memory in bytes; helpers that it starts are not in it.
func (p *program) resident() (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", p.name, err)
	}
	return field(string(raw), "VmRSS:")
}

// field reads a figure in kB as the files of /proc give it, in bytes.
func field(text, name string) (float64, error) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == name {
			kb, err := strconv.ParseFloat(f[1], 64)
			return kb * 1024, err
		}
	}
	return 0, fmt.Errorf("no %s in /proc", name)
}

// waitSynced waits until the program says that it has synced every family, and gives the latest of
// the times that it says. Each program's own word is the only sign of a restart that changes nothing.
func (p *program) waitSynced(ctx context.Context, began time.Time) (time.Time, error) {
	for {
		last, count := p.lastSync(ctx)
		if count == families && last.After(began) {
			return last, nil
		}
		// Asking costs CPU: at most some hundredths of what is measured.
		pause := min(max(5*time.Millisecond, time.Since(began)/20), 250*time.Millisecond)
		if err := sleep(ctx, pause); err != nil {
			return last, fmt.Errorf("sync of %s: %w; its log ends:\n%s", p.name, err, p.tail())
		}
	}
}

// lastSync gives the latest time and the number of families that have one. A program that does not
// answer has none.
func (p *program) lastSync(ctx context.Context) (last time.Time, count int) {
	resp, err := p.host.get(ctx, metricsURL)
	if err != nil {
		return last, 0
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return last, 0
	}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		seconds, ok := gauge(lines.Text(), lastSynced)
		if !ok || seconds == 0 {
			continue
		}
		count++
		if at := time.UnixMicro(int64(seconds * 1e6)); at.After(last) {
			last = at
		}
	}
	return last, count
}

// gauge reads a line of a metrics page.
func gauge(line, name string) (float64, bool) {
	rest, ok := strings.CutPrefix(line, name)
	if !ok || rest == "" || rest[0] != ' ' && rest[0] != '{' {
		return 0, false
	}
	value, err := strconv.ParseFloat(rest[strings.LastIndexByte(rest, ' ')+1:], 64)
	return value, err == nil
}

func (p *program) tail() string {
	raw, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

func (p *program) file(name string) string { return filepath.Join(p.dir, name) }

func (p *program) write(name, content string) error {
	if err := os.WriteFile(p.file(name), []byte(content), 0o600); err != nil {
		return fmt.Errorf("configuration of %s: %w", p.name, err)
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
