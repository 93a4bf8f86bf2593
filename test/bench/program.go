package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"edgeway/test/bench/cgroup"
	"edgeway/test/bench/kit"
)

type program struct {
	name string
	host *host
	argv []string
	env  []string // added to the environment of this process
	dir  string
	log  string
	cg   *cgroup.Group
	cmd  *exec.Cmd // nil if the program is stopped
}

// metricsURL is the URL at which Edgeway and kube-proxy, each on its own host, export the metric lastSynced. The metric
// lastSynced has a sample for each address family that has synced.
const (
	metricsURL = "http://127.0.0.1:10249/metrics"
	lastSynced = "kubeproxy_sync_proxy_rules_last_timestamp_seconds"
	families   = 2
)

// start starts the program and returns the time immediately before the start.
func (p *program) start() (time.Time, error) {
	out, err := os.OpenFile(p.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return time.Time{}, fmt.Errorf("log of %s: %w", p.name, err)
	}
	defer out.Close()
	p.cmd = p.command(p.argv...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	began := time.Now()
	if err := p.cg.Start(p.cmd); err != nil {
		return began, fmt.Errorf("start of %s: %w", p.name, err)
	}
	return began, nil
}

// command returns a command that runs on the program's host. ip(8) mounts a separate /sys for the network namespace and
// then executes the command.
func (p *program) command(argv ...string) *exec.Cmd {
	cmd := exec.Command("ip", append([]string{"netns", "exec", p.host.netns}, argv...)...)
	cmd.Env = append(os.Environ(), p.env...)
	return cmd
}

func (p *program) run(argv ...string) error {
	if out, err := p.command(argv...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s on %s's host: %w: %.500s", strings.Join(argv, " "), p.name, err, out)
	}
	return nil
}

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

func (p *program) close() {
	_ = p.stop()
	p.cg.Close()
}

// residentBytes returns the program's resident memory in bytes, excluding child processes.
func (p *program) residentBytes() (float64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, fmt.Errorf("memory of %s: %w", p.name, err)
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kb, err := strconv.ParseFloat(f[1], 64)
			return kb * 1024, err
		}
	}
	return 0, fmt.Errorf("memory of %s: no VmRSS", p.name)
}

// waitSynced waits until the metrics show that every address family has synced and that the latest sync is later than
// the time in began. waitSynced returns the time of the latest sync. If nothing has changed since the previous run, the
// metrics are the only sign that a restart is complete.
func (p *program) waitSynced(ctx context.Context, began time.Time) (time.Time, error) {
	for {
		last, count := p.lastSync(ctx)
		if count == families && last.After(began) {
			return last, nil
		}
		// The pause limits the CPU time that the program spends on metrics requests.
		pause := min(max(5*time.Millisecond, time.Since(began)/20), 250*time.Millisecond)
		if err := kit.Sleep(ctx, pause); err != nil {
			return last, fmt.Errorf("sync of %s: %w", p.name, err)
		}
	}
}

// lastSync returns the time of the latest sync, and the number of address families that have synced. count is 0 if the
// program does not respond.
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

// gauge returns the named metric's value from a line of metrics, or false if the line contains another metric.
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
