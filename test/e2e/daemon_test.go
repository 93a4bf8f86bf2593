package e2e

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"edgeway/test/e2e/cluster"
)

// cleanupContext returns a context for cleanup functions, because the test's own context is done before they run.
func cleanupContext() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), longTimeout)
	context.AfterFunc(ctx, cancel)
	return ctx
}

type daemon struct {
	*lab
	dir, config string
	user        string   // the user in the kubeconfig
	manager     *manager // nil if the daemon has no service manager
	env         []string // the variables to add to the test's own environment
	group       string   // the process list of the daemon's control group, or "" for the test's own group
	hosts       string   // the file to mount over /etc/hosts, or ""
	resolv      string   // the file to mount over /etc/resolv.conf if hosts is set, or "" for no name server
	router      string   // the value of $ROUTER in fixes
	link        *link
	cmd         *exec.Cmd
	ended       chan struct{}
}

func running(t *testing.T) (*lab, *daemon) {
	t.Helper()
	l := newLab(t)
	d := l.newDaemon()
	d.startReady()
	return l, d
}

func (d *daemon) shop() (n *namespace, clusterIP, nodePort string) {
	d.t.Helper()
	n = d.newNamespace()
	clusterIP, nodePort = n.createWeb("shop")
	d.waitFor(longTimeout, answers(d.client, nodePort, "ep1"))
	return n, clusterIP, nodePort
}

// watchOnly restricts the daemon to one namespace, because the endpoints of other tests' Services are unreachable from
// this lab.
func (d *daemon) watchOnly(n *namespace) {
	d.t.Helper()
	only := filepath.Join(d.dir, "conf.d", "namespace.toml")
	d.must(errors.Join(os.MkdirAll(filepath.Dir(only), 0o755),
		os.WriteFile(only, fmt.Appendf(nil, "[source.kube]\nnamespaces = [%q]\n", n.name), 0o600)))
}

// nodeName is the name of the node, which has no Node object. healthAddr and metricsAddr are the addresses on the
// node's loopback interface where the daemon serves health checks and metrics.
const (
	nodeName    = "edge-1"
	healthAddr  = "127.0.0.1:10256"
	metricsAddr = "127.0.0.1:10249"
)

// newDaemon prepares, but does not start, a daemon that reaches the API server over a link.
func (l *lab) newDaemon() *daemon {
	l.t.Helper()
	d := &daemon{lab: l, dir: l.t.TempDir(), user: cluster.Edgeway, link: newLink(l)}
	d.config = filepath.Join(d.dir, "edgeway.toml")
	d.configure("")
	d.must(errors.Join(os.Mkdir(filepath.Join(d.dir, "conf.d"), 0o755), os.WriteFile(d.externalIPs(),
		[]byte("proxy.allow_external_ips = [\"0.0.0.0/0\", \"::/0\"]\n"), 0o600)))
	l.t.Cleanup(func() {
		d.kill()
		if l.t.Failed() {
			log, err := os.ReadFile(d.logFile())
			l.t.Logf("log of the daemon (%v):\n%s", err, log)
		}
	})
	return d
}

func (d *daemon) externalIPs() string { return filepath.Join(d.dir, "conf.d", "external.toml") }

func (d *daemon) logFile() string { return filepath.Join(d.dir, "log") }

func (d *daemon) stateDir() string { return filepath.Join(d.dir, "state") }

func (d *daemon) configure(extra string) {
	d.t.Helper()
	kubeconfig := filepath.Join(d.dir, "kubeconfig")
	d.link.kubeconfig(d.lab, d.user, kubeconfig)
	text := fmt.Sprintf(`version = 1
[node]
name = %q
[source.kube]
kubeconfig = %q
[source.lastknown]
directory = %q
[control]
socket = %q
[log]
level = "debug"
[health]
address = %q
[metrics]
address = %q
%s`, nodeName, kubeconfig, d.stateDir(), filepath.Join(d.dir, "edgeway.sock"), healthAddr, metricsAddr, extra)
	d.must(os.WriteFile(d.config, []byte(text), 0o600))
}

func (d *daemon) start() {
	d.t.Helper()
	log, err := os.OpenFile(d.logFile(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	d.must(err)
	defer log.Close()
	command := d.node.Command
	if d.manager != nil {
		command = d.manager.command(d.node)
	}
	on := command
	if d.group != "" {
		on = func(ctx context.Context, name string, args ...string) *exec.Cmd {
			return command(ctx, "sh", append([]string{"-c", `echo $$ >"$0" && exec "$@"`, d.group, name}, args...)...)
		}
	}
	cmd := d.edgewayCommand(context.Background(), on, "run")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(cmd.Environ(), d.env...)
	d.must(cmd.Start())
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(ended)
	}()
	d.cmd, d.ended = cmd, ended
}

// edgewayCommand returns a command that runs edgeway with args. The "on" argument is a function that creates a command
// that will run on the node.
func (d *daemon) edgewayCommand(ctx context.Context, on func(context.Context, string, ...string) *exec.Cmd,
	args ...string,
) *exec.Cmd {
	args = append(args, "--config", d.config)
	if d.hosts == "" {
		return on(ctx, sharedState.binary, args...)
	}
	const names = `mount --bind "$0" /etc/hosts && mount --bind "$1" /etc/resolv.conf && shift && exec "$@"`
	return on(ctx, "unshare", append([]string{
		"--mount", "sh", "-c", names, d.hosts, cmp.Or(d.resolv, "/dev/null"),
		sharedState.binary,
	}, args...)...)
}

func (d *daemon) startReady() {
	d.t.Helper()
	d.start()
	d.waitFor(longTimeout, d.healthy)
}

func (d *daemon) kill() {
	if d.cmd != nil {
		_ = d.cmd.Process.Kill()
		<-d.ended
		d.cmd = nil
	}
}

func (d *daemon) signal(sig os.Signal) {
	d.t.Helper()
	d.must(d.cmd.Process.Signal(sig))
}

// stop sends SIGTERM to the daemon, as systemd does, and fails the test unless the exit code is 0.
func (d *daemon) stop() {
	d.t.Helper()
	d.signal(syscall.SIGTERM)
	select {
	case <-d.ended:
		if code := d.cmd.ProcessState.ExitCode(); code != 0 {
			d.t.Errorf("the daemon ended with code %d after SIGTERM, want 0", code)
		}
		d.cmd = nil
	case <-time.After(longTimeout):
		d.t.Fatal("the daemon does not end after SIGTERM")
	}
}

// cpuTicks returns the daemon's CPU time in hundredths of a second. If fields is 2, the result is the sum of user and
// kernel time. If fields is 4, the result also includes child processes that have exited.
func (d *daemon) cpuTicks(fields int) (sum int) {
	d.t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", d.cmd.Process.Pid))
	d.must(err)
	_, rest, _ := strings.Cut(string(raw), ") ")             // cut off the process ID and the program's name
	for _, f := range strings.Fields(rest)[11 : 11+fields] { // utime, stime, cutime, cstime: proc_pid_stat(5)
		n, err := strconv.Atoi(f)
		d.must(err)
		sum += n
	}
	return sum
}

func (d *daemon) logged(words ...string) func() error {
	return func() error {
		log, err := os.ReadFile(d.logFile())
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(log)) {
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) }) {
				return nil
			}
		}
		return fmt.Errorf("no line of the log has %q", words)
	}
}

func (d *daemon) get(addr, path string) (code int, body string, err error) {
	client := http.Client{
		Timeout: longTimeout,
		Transport: &http.Transport{
			DisableKeepAlives: true,
			DialContext: func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
				err = d.node.Do(func() error {
					conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
					return err
				})
				return conn, err
			},
		},
	}
	resp, err := client.Get("http://" + addr + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw), err
}

func (d *daemon) healthIs(want int) func() error {
	return func() error {
		code, body, err := d.get(healthAddr, "/healthz")
		if err != nil {
			return err
		}
		if code != want {
			return fmt.Errorf("/healthz is %d, want %d: %s", code, want, body)
		}
		return nil
	}
}

func (d *daemon) healthy() error { return d.healthIs(http.StatusOK)() }

func (d *daemon) edgeway(args ...string) (stdout, stderr string, code int) {
	d.t.Helper()
	cmd := d.edgewayCommand(d.t.Context(), d.node.Command, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		d.t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

type status struct {
	Time    time.Time
	Healthy bool
	Sources []struct {
		Name        string
		LastContact time.Time
		Fault       struct{ Message string }
	}
	LastKnown struct {
		Serving bool
		SavedAt time.Time
	}
	Backend   stage
	Followers []stage
	Faults    []statusFault
	Problems  problems
}

type stage struct {
	Name         string
	LastSync     time.Time
	DriftRepairs int
}

// repairs returns the number of times that the daemon repaired rules that another program had changed.
func (s status) repairs() (n int) {
	for _, st := range append(s.Followers, s.Backend) {
		n += st.DriftRepairs
	}
	return n
}

type statusFault struct{ ID, Message, Fix string }

type problems struct{ First []problem }

func (p problems) String() string { return fmt.Sprint(p.First) }

type problem struct{ At, Object, Field, Message, Fix string }

func (p problem) String() string {
	return fmt.Sprintf("%s: %s: %s: %s; fix: %s", p.At, p.Object, p.Field, p.Message, p.Fix)
}

func (d *daemon) status() (status, error) {
	out, errs, code := d.edgeway("status", "--json")
	var s status
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		return s, fmt.Errorf("edgeway status --json (code %d, %s): %w in %q", code, errs, err, out)
	}
	return s, nil
}

// statusPrints returns an error unless `edgeway status` succeeds and prints all of the words.
func (d *daemon) statusPrints(words ...string) func() error {
	return func() error {
		out, errs, code := d.edgeway("status")
		for _, w := range words {
			if code != 0 || !strings.Contains(out, w) {
				return fmt.Errorf("edgeway status ended with %d and does not say %q:\n%s%s", code, w, out, errs)
			}
		}
		return nil
	}
}
