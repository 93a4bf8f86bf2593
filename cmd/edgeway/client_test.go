package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"edgeway/daemon/control"
	"edgeway/daemon/doctor"
	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/health"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// startFakeDaemon starts a server that simulates the daemon on a control socket, and returns the path of a
// configuration file that names the socket.
func startFakeDaemon(t *testing.T, status control.Status) (configName string) {
	t.Helper()
	return startFakeDaemonWith(t, func() control.Status { return status })
}

func startFakeDaemonWith(t *testing.T, status func() control.Status) (configName string) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	route := plan.Route{Pool: plan.ClusterPool}
	p := &plan.Plan{Node: &plan.Node{Name: "edge"}, Services: []*plan.ServicePort{{
		Name:      plan.ServicePortName{Namespace: "default", Name: "web", Protocol: plan.TCP},
		Family:    plan.IPv4,
		Frontends: []plan.Frontend{{Addr: netip.MustParseAddr("10.96.0.10"), Port: 80, Routes: [3]plan.Route{route, route, route}}},
		Pools:     [2][]plan.Endpoint{{{Addr: netip.MustParseAddrPort("10.77.1.11:8080")}}},
	}}}
	server, err := control.Listen(control.Options{
		Socket: socket,
		Logger: slog.New(slog.DiscardHandler),
		Status: status,
		State:  func() pipeline.State { return pipeline.State{AppliedPlan: p} },
		Facts:  func() doctor.Facts { return doctor.Facts{PID: 1, Faults: status().Faults} },
		Lookups: control.Lookups{
			Gaps:         func(*plan.ServicePort) []proxiers.Gap { return nil },
			DescribeDead: func(*plan.ServicePort) []string { return nil },
			NextHop: func(netip.Addr) (nodeinfo.NextHop, error) {
				return nodeinfo.NextHop{Source: netip.MustParseAddr("192.0.2.1"), Interface: "eth0"}, nil
			},
			FastPath: func(*plan.ServicePort, plan.Origin, []nodeinfo.NextHop) string { return "" },
			Faults:   func() []fault.Fault { return nil },
			Path:     func(plan.Decision, bool) (proxiers.Path, error) { return proxiers.Path{}, nil },
		},
		Position:      func(source.Key) string { return "" },
		DeadEndpoints: func() *endpointcheck.DeadEndpoints { return nil },
		Connections:   func() map[proxiers.Frontends]uint64 { return nil },
		Reload:        func(context.Context) error { return errors.New("edgeway.toml:3: it is wrong") },
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- server.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return configFile(t, fmt.Sprintf("version = 1\nsource.file.paths = ['m']\ncontrol.socket = %q", socket))
}

func TestCommandsWithoutDaemonExitWith3(t *testing.T) {
	dir := t.TempDir()
	name := configFile(t, fmt.Sprintf("version = 1\nsource.file.paths = ['m']\nsource.lastknown.directory = %q\ncontrol.socket = %q",
		dir, filepath.Join(dir, "s")))
	for _, command := range []string{"status", "services", "plan", "explain host 10.96.0.10:80", "reload"} {
		code, stdout, stderr := run(t, append(strings.Fields(command), "--config", name)...)
		if code != exitNotRunning || stdout != "" || !strings.HasPrefix(stderr, "edgeway: ") {
			t.Errorf("%s: exit %d, out %q, err %q", command, code, stdout, stderr)
		}
	}
}

func TestStatusExitsWith4WhenUnhealthy(t *testing.T) {
	for healthy, want := range map[bool]int{true: exitOK, false: exitUnhealthy} {
		name := startFakeDaemon(t, control.Status{
			Version: "1.2.3", Report: health.Report{Healthy: healthy, Ready: healthy},
		})
		code, stdout, stderr := run(t, "status", "--config", name)
		if code != want || stderr != "" || !strings.HasPrefix(stdout, "edgeway 1.2.3: ") {
			t.Errorf("healthy %t: exit %d, err %q, out:\n%s", healthy, code, stderr, stdout)
		}
		code, stdout, _ = run(t, "status", "--json", "--config", name)
		var s control.Status
		if err := json.Unmarshal([]byte(stdout), &s); err != nil || code != want || s.Version != "1.2.3" ||
			s.Healthy != healthy {
			t.Errorf("healthy %t, JSON: exit %d, %v, out:\n%s", healthy, code, err, stdout)
		}
	}
}

// status --wait returns when the daemon becomes ready, even if the daemon starts after the command. If the daemon does
// not become ready in time, status --wait reports the reason.
func TestStatusWaitFlag(t *testing.T) {
	for name, c := range map[string]struct {
		answers []control.Status // answers is nil if no daemon responds
		code    int
		want    string
	}{
		"ready":            {[]control.Status{{Report: health.Report{Healthy: true, Ready: true}}}, exitOK, ": healthy"},
		"ready later":      {[]control.Status{{}, {Report: health.Report{Healthy: true}}, {Report: health.Report{Healthy: true, Ready: true}}}, exitOK, ": healthy"},
		"a Node that goes": {[]control.Status{{Report: health.Report{Healthy: true}}}, exitOK, "not eligible"},
		"never ready":      {[]control.Status{{Report: health.Report{NodeEligible: true}}}, exitUnhealthy, ": UNHEALTHY"},
		"no daemon":        {nil, exitUnhealthy, "was not ready within 3s: the edgeway daemon is not running"},
	} {
		config := configFile(t, "version = 1\nsource.file.paths = ['m']\ncontrol.socket = '/nowhere/s'")
		if c.answers != nil {
			config = startFakeDaemonWith(t, func() control.Status {
				first := c.answers[0]
				if len(c.answers) > 1 {
					c.answers = c.answers[1:]
				}
				return first
			})
		}
		limit := map[bool]time.Duration{true: time.Minute, false: 3 * time.Second}[c.code == exitOK]
		began := time.Now()
		code, stdout, stderr := run(t, "status", "--wait="+limit.String(), "--config", config)
		if code != c.code || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("%s: exit %d, want %d and %q; out:\n%s%s", name, code, c.code, c.want, stdout, stderr)
		}
		if took := time.Since(began); code == exitOK && took >= limit {
			t.Errorf("%s: it took %s", name, took)
		}
	}
}

func TestServicesPlanAndExplainPrintAnswers(t *testing.T) {
	name := startFakeDaemon(t, control.Status{})
	for _, c := range []struct {
		command, want string
		code          int
	}{
		{"plan", `"name": "default/web/TCP"`, exitOK},
		{"plan default/web", "10.77.1.11:8080", exitOK},
		{"plan --json", `"name": "default/web/TCP"`, exitOK},
		{"plan -o json", `"name": "default/web/TCP"`, exitOK},
		{"plan --output=yaml", "must be one of: json", exitUsage},
		{"plan default/none", "edgeway: ", exitFailure},
		{"services", "default/web     10.96.0.10  80/TCP", exitOK},
		{"services default -o wide", "SERVICEPORTS", exitOK},
		{"services default/web -o name", "default/web\n", exitOK},
		{"services -o json", `"kind": "ServiceList"`, exitOK},
		{"services --problems", "no Service has a problem\n", exitOK},
		{"services none", "no Service in none\n", exitOK},
		{"services default/none", "edgeway: Service default/none does not exist", exitFailure},
		{"services default/", "edgeway: ", exitUsage},
		{"explain 192.0.2.9 10.96.0.10:80/tcp", "10.77.1.11:8080", exitOK},
		{"explain --json 192.0.2.9 10.96.0.10:80", `"verdict": "forward"`, exitOK},
		{"explain host default/web", "192.0.2.1 (host)", exitOK},
		{"explain --exit-code host default/web", "forward: ", exitOK},
		{"explain 192.0.2.9 10.96.0.10:81", "reject: ", exitOK},
		{"explain --exit-code 192.0.2.9 10.96.0.10:81", "reject: ", exitUnhealthy},
		{"explain --exit-code 192.0.2.9 127.0.0.1:80", "drop: martian", exitUnhealthy},
		{"explain 192.0.2.9 10.96.0.10", "10.77.1.11:8080", exitOK},
		{"explain host web", "forward: ", exitOK},
		{"explain host none", "edgeway: ", exitFailure},
		{"explain 192.0.2.9 10.96.0.11", "edgeway: ", exitUsage},
		{"explain somewhere web", "edgeway: ", exitUsage},
		{"reload", "edgeway: edgeway.toml:3: it is wrong", exitFailure},
	} {
		code, stdout, stderr := run(t, append(strings.Fields(c.command), "--config", name)...)
		if code != c.code || !strings.Contains(stdout+stderr, c.want) {
			t.Errorf("%s: exit %d, want %d and %q; out:\n%s%s", c.command, code, c.code, c.want, stdout, stderr)
		}
	}
}

func TestCommandsReportInvalidConfiguration(t *testing.T) {
	name := configFile(t, "version = 1\n[proxy]\nnope = 1\n")
	for _, command := range []string{"status", "services", "plan", "explain host 10.96.0.10:80", "reload"} {
		code, stdout, stderr := run(t, append(strings.Fields(command), "--config", name)...)
		if code != exitUsage || stdout != "" ||
			!strings.HasPrefix(stderr, "edgeway: "+name+":3: proxy.nope: unknown key") ||
			!strings.Contains(stderr, "the default socket") {
			t.Errorf("%s: exit %d, out %q, err %q", command, code, stdout, stderr)
		}
	}
}

// verifyCompletion fails the test unless shell completion offers the Service default/web.
func verifyCompletion(t *testing.T, configName string) {
	t.Helper()
	for command, want := range map[string]string{
		"plan def": "default/web\n:4\n", "plan x": ":4\n", "plan default/web ": ":4\n",
		"services def": "default/web\n:4\n",
		"explain h":    "host\n:4\n", "explain host default/": "default/web\n:4\n", "explain host default/web ": ":4\n",
	} {
		args := append([]string{"__complete", "--config", configName}, strings.Split(command, " ")...)
		if code, stdout, _ := run(t, args...); code != exitOK || stdout != want {
			t.Errorf("%s: exit %d, %q, want %q", command, code, stdout, want)
		}
	}
}

func TestCompletionFromDaemon(t *testing.T) {
	verifyCompletion(t, startFakeDaemon(t, control.Status{}))
}

// A daemon that hangs does not respond, but its rules still serve connections. If edgeway cleanup ignored the daemon's
// lock, the command would remove Edgeway's rules from the test's network namespace. If the test runs as root, it
// therefore starts edgeway cleanup in a new network namespace.
func TestCleanupRefusesWhileDaemonRuns(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	socket := filepath.Join(t.TempDir(), "s")
	hung, err := control.Listen(control.Options{Socket: socket}) // without Run, the server does not respond
	if err != nil {
		t.Fatal(err)
	}
	defer hung.Close()
	for name, configName := range map[string]string{
		"responds": startFakeDaemon(t, control.Status{}),
		"hangs":    configFile(t, fmt.Sprintf("version = 1\nsource.file.paths = ['m']\ncontrol.socket = %q", socket)),
	} {
		cmd := exec.CommandContext(t.Context(), self, "cleanup", "--config", configName)
		if os.Geteuid() == 0 {
			cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		}
		out, _ := cmd.CombinedOutput()
		code := cmd.ProcessState.ExitCode()
		if code != exitFailure || !strings.Contains(string(out), "systemctl stop edgeway") {
			t.Errorf("the daemon %s: exit %d, output %q", name, code, out)
		}
	}
}

// A running daemon holds the lock of its network namespace even if its socket is not the one in edgeway cleanup's
// configuration.
func TestCleanupRefusesWithAnotherSocket(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const holdLock = `mount -t tmpfs none /run && mkdir /run/edgeway &&
exec flock "/run/edgeway/netns-$(stat -L -c %i /proc/self/ns/net).lock" "$@"`
	configName := configFile(t, fmt.Sprintf("version = 1\nsource.file.paths = ['m']\ncontrol.socket = %q",
		filepath.Join(t.TempDir(), "s")))
	cmd := exec.CommandContext(t.Context(), "sh", "-c", holdLock, "sh", self, "cleanup", "--config", configName)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Unshareflags: syscall.CLONE_NEWNS}
	if uid := os.Geteuid(); uid != 0 {
		cmd.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: uid, Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}
	}
	out, _ := cmd.CombinedOutput()
	code := cmd.ProcessState.ExitCode()
	if code != exitFailure || !strings.Contains(string(out), "in this network namespace") {
		t.Errorf("exit %d, output %q", code, out)
	}
}
