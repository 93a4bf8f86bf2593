package daemon

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
	"edgeway/test/sdtest"
)

// childConfigEnv is the environment variable that contains the path of the daemon's configuration. If the variable is
// set, the test binary runs the daemon with that configuration.
const childConfigEnv = "EDGEWAY_TEST_CONFIG"

func TestMain(m *testing.M) {
	netlab.PeerMain()
	path := os.Getenv(childConfigEnv)
	if path == "" {
		os.Exit(m.Run())
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := Run(ctx, Options{ConfigPath: path, Version: "test", LogOutput: os.Stderr}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// unit runs the daemon on the lab's node, as systemd would. The test simulates systemd.
type unit struct {
	*testing.T
	manager *sdtest.Manager
	lab     *netlab.Lab
	config  string
	cmd     *exec.Cmd
	seen    []sdtest.Datagram
	stored  map[string]*os.File
}

var (
	endpoint     = netip.MustParseAddrPort("10.244.1.11:8080")
	loopbackPort = netip.MustParseAddrPort("127.0.0.1:30080")
)

const manifest = `
apiVersion: v1
kind: Service
metadata: {name: web, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10]
  ipFamilies: [IPv4]
  ports: [{port: 80, targetPort: 8080, nodePort: 30080, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web-1, namespace: default, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.11], conditions: {ready: true}}]
`

func newUnit(t *testing.T) *unit {
	t.Helper()
	u := &unit{T: t, manager: sdtest.New(t), lab: netlab.New(t, netlab.Options{}), stored: map[string]*os.File{}}
	if err := u.lab.Host("ep", endpoint.Addr()).Serve("ep", endpoint, plan.TCP); err != nil {
		t.Fatal(err)
	}
	u.config = filepath.Join(t.TempDir(), "edgeway.toml")
	u.configure("")
	u.write("web.yaml", manifest)
	t.Cleanup(func() {
		if u.cmd != nil {
			_ = u.cmd.Process.Kill()
			_ = u.cmd.Wait()
		}
	})
	return u
}

func (u *unit) write(name, text string) string {
	u.Helper()
	path := filepath.Join(filepath.Dir(u.config), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		u.Fatal(err)
	}
	return path
}

func (u *unit) configure(extra string) {
	u.Helper()
	u.configureProxy(`nodeport_addresses = ["localhost"]`, extra)
}

func (u *unit) configureProxy(proxy, extra string) {
	u.Helper()
	dir := filepath.Dir(u.config)
	text := fmt.Sprintf(`version = 1
[node]
name = "edge"
[source.file]
paths = [%q]
[proxy]
ip_families = ["IPv4"]
%s
[health]
address = ""
[metrics]
address = ""
[control]
socket = %q
[source.lastknown]
directory = %q
%s`, filepath.Join(dir, "web.yaml"), proxy, filepath.Join(dir, "edgeway.sock"), filepath.Join(dir, "state"), extra)
	u.write(filepath.Base(u.config), text)
}

// start starts the daemon as systemd does, and passes it the sockets from the fd store.
func (u *unit) start() {
	u.Helper()
	var names []string
	var files []*os.File
	for name, f := range u.stored {
		names, files = append(names, name), append(files, f)
	}
	u.cmd = u.lab.Node.Command(context.Background(), "sh", "-c", `LISTEN_PID=$$ exec "$0"`, os.Args[0])
	u.cmd.Env = append(os.Environ(), childConfigEnv+"="+u.config, "WATCHDOG_USEC=1000000",
		"LISTEN_FDNAMES="+strings.Join(names, ":"), fmt.Sprintf("LISTEN_FDS=%d", len(files)))
	u.cmd.ExtraFiles, u.cmd.Stderr = files, os.Stderr
	if err := u.cmd.Start(); err != nil {
		u.Fatal(err)
	}
}

// receive records the datagrams that the daemon sent, and updates the fd store accordingly.
func (u *unit) receive() {
	for _, d := range u.manager.Receive() {
		u.seen = append(u.seen, d)
		name := d.Value("FDNAME")
		switch {
		case d.Has("FDSTORE=1") && len(d.FDs) == 1:
			copied, err := syscall.Dup(d.FDs[0])
			if err != nil {
				u.Fatal(err)
			}
			syscall.CloseOnExec(copied)
			u.stored[name] = os.NewFile(uintptr(copied), name)
		case d.Has("FDSTOREREMOVE=1") && u.stored[name] != nil:
			u.stored[name].Close()
			delete(u.stored, name)
		}
	}
}

// await waits for a datagram with the given assignment, such as "READY=1", and discards all earlier datagrams.
func (u *unit) await(assignment string) sdtest.Datagram {
	u.Helper()
	for deadline := time.Now().Add(2 * time.Minute); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		u.receive()
		for i, d := range u.seen {
			if d.Has(assignment) {
				u.seen = u.seen[i+1:]
				return d
			}
		}
	}
	u.Fatalf("the service manager was not told %s; it was told %+v", assignment, u.seen)
	return sdtest.Datagram{}
}

func (u *unit) ask() netlab.Outcome {
	return u.lab.Node.Connect(netlab.Flow{
		Protocol: plan.TCP, From: loopbackPort.Addr(), To: loopbackPort, Wait: time.Minute,
	})
}

func (u *unit) signal(sig os.Signal) {
	u.Helper()
	if err := u.cmd.Process.Signal(sig); err != nil {
		u.Fatal(err)
	}
}

// The test covers the unit's whole lifetime, as seen by systemd and by a client of a NodePort on loopback.
func TestUnitLifecycle(t *testing.T) {
	u := newUnit(t)
	u.start()
	ready := u.await("READY=1")
	if text := ready.Value("STATUS"); !strings.HasPrefix(text, "nftables: 1 Service, 1 endpoint, synced ") {
		t.Errorf("it is ready with the status %q", text)
	}
	out, err := u.lab.Node.Command(t.Context(), "nft", "list", "table", "ip", "edgeway").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "10.96.0.10") {
		t.Errorf("it is ready, and the kernel has %v\n%s", err, out)
	}
	u.await("WATCHDOG=1")
	if got := u.ask(); got.Server != "ep" {
		t.Fatalf("the NodePort on loopback: %s", got)
	}

	u.configure("[log]\nlevel = \"debug\"\n")
	u.signal(syscall.SIGHUP)
	if d := u.await("RELOADING=1"); d.Value("MONOTONIC_USEC") == "" {
		t.Errorf("a reload began with %+v", d)
	}
	u.await("READY=1")
	u.configure("[log]\nlevel = \"nonsense\"\n")
	u.signal(syscall.SIGHUP)
	u.await("RELOADING=1")
	u.await("READY=1")
	u.await("WATCHDOG=1")
	u.configure("")

	for _, end := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		u.receive()
		if len(u.stored) != 1 {
			t.Fatalf("stored are %v", u.stored)
		}
		u.signal(end)
		if end == syscall.SIGTERM {
			u.await("STOPPING=1")
		}
		_ = u.cmd.Wait()
		waiting := make(chan netlab.Outcome, 1)
		go func() { waiting <- u.ask() }()
		time.Sleep(200 * time.Millisecond) // the client connects before the daemon starts
		u.start()
		u.await("READY=1")
		if got := <-waiting; got.Server != "ep" {
			t.Errorf("a client that came after %s: %s", end, got)
		}
	}
	u.signal(syscall.SIGTERM)
	if err := u.cmd.Wait(); err != nil {
		t.Errorf("the end: %v", err)
	}
	u.cmd = nil
}

// Before sending READY=1, the daemon runs nft to probe the backend. The probe takes minutes on a slow single-board
// computer.
func TestSlowProbeExtendsStartTimeout(t *testing.T) {
	u := newUnit(t)
	nft, err := exec.LookPath("nft")
	if err != nil {
		t.Fatal(err)
	}
	hold := u.write("hold", "")
	slow := u.write("nft", fmt.Sprintf("#!/bin/sh\nwhile [ -e %q ]; do sleep 0.1; done\nexec %q \"$@\"\n", hold, nft))
	if err := os.Chmod(slow, 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", filepath.Dir(slow)+":"+os.Getenv("PATH"))
	u.start()
	if first := u.await("EXTEND_TIMEOUT_USEC=390000000"); first.Has("READY=1") {
		t.Error("ready before the probe has ended")
	}
	if err := os.Remove(hold); err != nil {
		t.Fatal(err)
	}
	u.await("READY=1")
}

const checkedManifest = `
apiVersion: v1
kind: Service
metadata: {name: lb, namespace: default}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.11
  clusterIPs: [10.96.0.11]
  ipFamilies: [IPv4]
  externalTrafficPolicy: Local
  healthCheckNodePort: 30999
  ports: [{port: 80, targetPort: 8080, nodePort: 30081, protocol: TCP}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: lb-1, namespace: default, labels: {kubernetes.io/service-name: lb}}
addressType: IPv4
ports: [{port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.244.1.11], nodeName: edge, conditions: {ready: true}}]
`

const absentServer = `
apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: u, user: {}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`

// A load balancer gets health responses while the daemon reloads its configuration, even if the new configuration adds
// an unreachable API server and the daemon cannot compute a plan.
func TestHealthChecksAnswerDuringReload(t *testing.T) {
	u := newUnit(t)
	u.write("web.yaml", checkedManifest)
	kubeconfig := u.write("kubeconfig", absentServer)
	node := u.lab.Node.Addr(endpoint.Addr())
	proxy := fmt.Sprintf("nodeport_addresses = [\"%s/32\"]", node)
	u.configureProxy(proxy, "")
	u.start()
	u.await("READY=1")
	ask := func(when string) {
		t.Helper()
		answer := get(t, u.lab.Node, netip.AddrPortFrom(node, 30999), "/", "")
		if !strings.Contains(answer, `"localEndpoints": 1`) {
			t.Errorf("%s:\n%s", when, answer)
		}
	}
	ask("at first")
	u.configureProxy(proxy, fmt.Sprintf("enabled = false\n[source.kube]\nkubeconfig = %q\n", kubeconfig))
	u.signal(syscall.SIGHUP)
	u.await("RELOADING=1")
	u.await("READY=1")
	ask("after a reload, without the API server")
}
