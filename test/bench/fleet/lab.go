package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"edgeway/test/bench/cgroup"
	"edgeway/test/bench/kit"
	"edgeway/test/e2e/cluster"
)

// lab consists of two network namespaces: one with an API server, and one for the hosts.
type lab struct {
	opts    options
	dir     string
	prefix  string
	cluster *cluster.Cluster
	group   *cgroup.Group
	written int
	// controllerToken is the token of a controller outside the fleet.
	controllerToken string
}

func (l *lab) core() string  { return l.prefix + "core" }
func (l *lab) edge() string  { return l.prefix + "edge" }
func (l *lab) audit() string { return filepath.Join(l.dir, "audit.log") }

// kubeconfigDir returns the directory that contains a kubeconfig for each host. The hosts' user can read the
// kubeconfigs.
func (l *lab) kubeconfigDir() string { return filepath.Join(l.dir, "hosts") }

func newLab(ctx context.Context, opts options) (*lab, error) {
	dir, err := os.MkdirTemp("", "edgeway-fleet-")
	if err != nil {
		return nil, fmt.Errorf("fleet directory: %w", err)
	}
	l := &lab{opts: opts, dir: dir, prefix: fmt.Sprintf("ewfleet%d-", os.Getpid())}
	if err := l.setup(ctx); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) setup(ctx context.Context) error {
	err := kit.IP(ctx,
		"netns add "+l.core(), "netns add "+l.edge(),
		"-n "+l.core()+" link set lo up", "-n "+l.edge()+" link set lo up",
		"-n "+l.core()+" link add eth0 type veth peer name eth0 netns "+l.edge(),
		"-n "+l.core()+" addr add 172.20.0.1/24 dev eth0", "-n "+l.edge()+" addr add 172.20.0.2/24 dev eth0",
		"-n "+l.core()+" link set eth0 up", "-n "+l.edge()+" link set eth0 up")
	if err != nil {
		return err
	}
	if l.group, err = cgroup.New(l.prefix + "hosts"); err != nil {
		return err
	}
	policy := filepath.Join(l.dir, "policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return fmt.Errorf("audit policy: %w", err)
	}
	l.cluster, err = cluster.Start(ctx, cluster.Options{
		Netns: l.core(), Addr: netip.MustParseAddr("172.20.0.1"),
		Fairness:  true,
		APIServer: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + l.audit(), "--audit-log-maxsize=4096"},
	})
	if err != nil {
		return err
	}
	if err := l.makeIdentities(ctx); err != nil {
		return fmt.Errorf("creating the hosts' identities: %w", err)
	}
	return l.cluster.Load(ctx, cluster.Load{Services: l.opts.services, Endpoints: l.opts.endpoints})
}

func (l *lab) close() {
	if l.group != nil {
		l.group.Close()
	}
	if l.cluster != nil {
		l.cluster.Stop()
	}
	// The cleanup needs a new context, because the run's context may already be done.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	for _, name := range []string{l.edge(), l.core()} {
		_ = kit.IP(ctx, "netns del "+name)
	}
	_ = os.RemoveAll(l.dir)
}

type fleet struct {
	cmd   *exec.Cmd
	state atomic.Pointer[state]
}

// start starts the hosts. If selector is empty, each host watches all Services.
func (l *lab) start(selector string) (*fleet, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("own program: %w", err)
	}
	// The hosts of a real fleet have their own cores. With the scheduling policy SCHED_IDLE, the benchmark's hosts use
	// only the CPU time that the API server, etcd and the other clients leave.
	f := &fleet{cmd: exec.Command("ip", "netns", "exec", l.edge(), "chrt", "--idle", "0",
		self, hostsCommand, strconv.Itoa(l.opts.hosts), l.kubeconfigDir(), selector)}
	f.cmd.Stderr = os.Stderr
	lines, err := f.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("output of the hosts: %w", err)
	}
	if err := l.group.Start(f.cmd); err != nil {
		return nil, fmt.Errorf("start of the hosts: %w", err)
	}
	f.state.Store(&state{})
	go func() {
		for in := json.NewDecoder(lines); ; {
			var s state
			if in.Decode(&s) != nil {
				return // this error means that the process has exited
			}
			f.state.Store(&s)
		}
	}()
	return f, nil
}

func (f *fleet) stop() error { return kit.Stop(f.cmd, 30*time.Second) }

func (f *fleet) await(ctx context.Context, what string, wanted func(state) bool) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	for !wanted(*f.state.Load()) {
		if err := kit.Sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("waiting until %s: %w; state of the hosts: %+v", what, err, *f.state.Load())
		}
	}
	return nil
}

type usage struct {
	at time.Time
	// bytes is the number of bytes that the hosts received, including packet headers.
	bytes float64
	// hosts and server are the CPU times, in seconds, of the hosts and of the API server. memory is the API server's
	// resident memory in bytes.
	hosts, server, memory float64
}

func (l *lab) usage() (u usage, err error) {
	var cpu time.Duration
	if cpu, err = l.group.CPU(); err != nil {
		return u, err
	}
	u.at, u.hosts = time.Now(), cpu.Seconds()
	proc := filepath.Join("/proc", strconv.Itoa(l.cluster.APIServerPID()))
	stat, err := os.ReadFile(filepath.Join(proc, "stat"))
	if err != nil {
		return u, fmt.Errorf("API server CPU time: %w", err)
	}
	if u.server, u.memory, err = parseStat(string(stat)); err != nil {
		return u, err
	}
	err = cluster.RunInNetns(l.edge(), func() error {
		// /proc/net would list the devices in the network namespace of the process's main thread, not of this thread.
		dev, err := os.ReadFile("/proc/thread-self/net/dev")
		if err == nil {
			u.bytes, err = parseReceived(string(dev), "eth0")
		}
		return err
	})
	return u, err
}

// parseStat parses the text of /proc/PID/stat (see proc_pid_stat(5)), and returns the CPU time in seconds and the
// resident memory in bytes. The file contains CPU times in hundredths of a second, regardless of the kernel's tick
// rate.
func parseStat(text string) (cpu, memory float64, err error) {
	// The second field, the program's name in parentheses, may contain spaces, so parseStat splits only the text after
	// this field.
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 22 {
		return 0, 0, fmt.Errorf("/proc/PID/stat has only %d fields after the program's name", len(fields))
	}
	var values [3]float64 // fields 14, 15 and 24
	for i, n := range []int{11, 12, 21} {
		if values[i], err = strconv.ParseFloat(fields[n], 64); err != nil {
			return 0, 0, fmt.Errorf("stat of a process: %w", err)
		}
	}
	return (values[0] + values[1]) / 100, values[2] * float64(os.Getpagesize()), nil
}

// parseReceived parses the text of /proc/net/dev, and returns the number of bytes that a network device has received.
func parseReceived(text, device string) (float64, error) {
	for line := range strings.Lines(text) {
		name, figures, _ := strings.Cut(line, ":")
		if fields := strings.Fields(figures); strings.TrimSpace(name) == device && len(fields) > 0 {
			return strconv.ParseFloat(fields[0], 64)
		}
	}
	return 0, fmt.Errorf("no device %s", device)
}
