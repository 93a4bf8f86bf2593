package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/test/bench/kit"
)

// lab holds the endpoint, which is in this network namespace, and the relays.
type lab struct {
	dir      string
	endpoint *endpoint
	relays   []relay
}

// relay describes a running program that relays connections to the endpoint, or the endpoint itself ("direct").
type relay struct {
	name string
	addr netip.AddrPort
	cmd  *exec.Cmd
}

// endpointAddr is outside 127.0.0.0/8, because a Service endpoint must not have a loopback address.
var endpointAddr = netip.MustParseAddrPort("10.128.0.1:7000")

func newLab(ctx context.Context, o options) (*lab, error) {
	dir, err := os.MkdirTemp("", "edgeway-loopback-")
	if err != nil {
		return nil, fmt.Errorf("benchmark directory: %w", err)
	}
	l := &lab{dir: dir, relays: []relay{{name: "direct", addr: endpointAddr}}}
	if err := l.setup(ctx, o); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *lab) setup(ctx context.Context, o options) error {
	// 1,000 streams need more file descriptors than the usual limit allows. Child processes inherit this process's
	// limit.
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("file descriptor limit: %w", err)
	}
	limit.Cur = limit.Max
	err := errors.Join(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit),
		// If the kernel kept sockets in the TIME-WAIT state, closed connections would occupy all ports within seconds.
		sysctl("tcp_max_tw_buckets", "0"),
		// With the default buffer sizes, 1,000 streams may buffer 10 GB, which is more than tcp_mem allows.
		sysctl("tcp_rmem", "4096 131072 524288"), sysctl("tcp_wmem", "4096 131072 524288"),
		kit.IP(ctx, "link set lo up", "addr add "+endpointAddr.Addr().String()+"/32 dev lo"),
		os.Chmod(l.dir, 0o755)) //nolint:gosec // the unprivileged user reads its configuration
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp4", endpointAddr.String())
	if err != nil {
		return fmt.Errorf("endpoint: %w", err)
	}
	l.endpoint = &endpoint{Listener: listener}
	go l.endpoint.serve()
	if o.edgeway == "" {
		o.edgeway = filepath.Join(l.dir, "edgeway")
		if err := kit.Build(ctx, o.edgeway); err != nil {
			return err
		}
	}
	if err := l.startEdgeway("edgeway", o.edgeway, 30080); err != nil {
		return err
	}
	if o.previous != "" {
		if err := l.startEdgeway("previous", o.previous, 30081); err != nil {
			return err
		}
	}
	return l.startSocketProxyd()
}

func sysctl(name, value string) error {
	return os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0)
}

func (l *lab) close() {
	for _, r := range l.relays[1:] {
		_ = kit.Stop(r.cmd, 10*time.Second)
	}
	if l.endpoint != nil {
		_ = l.endpoint.Close()
	}
	_ = os.RemoveAll(l.dir)
}

func (l *lab) start(name string, port uint16, cmd *exec.Cmd) error {
	log, err := os.Create(filepath.Join(l.dir, name+".log"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start of %s: %w", name, err)
	}
	r := relay{name, netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port), cmd}
	l.relays = append(l.relays, r)
	for until := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		if err = echo(r.addr); err == nil {
			return nil
		}
		if time.Now().After(until) {
			text, _ := os.ReadFile(log.Name())
			return fmt.Errorf("%s does not relay connections: %w; the end of the program's log: %s", name, err,
				text[max(0, len(text)-2000):])
		}
	}
}

const configuration = `version = 1
[node]
name = "bench-edge"
[source.file]
paths = ["%[1]s/service.yaml"]
[proxy]
nodeport_addresses = ["localhost"]
[health]
address = ""
[metrics]
address = ""
[control]
socket = "%[1]s/control.sock"
`

const manifest = `apiVersion: v1
kind: Service
metadata: {name: bench, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  ports: [{protocol: TCP, port: 80, targetPort: %[1]d, nodePort: %[3]d}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: bench-1, namespace: default, labels: {kubernetes.io/service-name: bench}}
addressType: IPv4
ports: [{protocol: TCP, port: %[1]d}]
endpoints: [{addresses: [%[2]s], conditions: {ready: true}}]
...
`

// startEdgeway starts a daemon with one NodePort. If the benchmark compares two versions of Edgeway, both daemons share
// the nft tables. The tables contain no rule for the benchmark's connections, because only the relay serves NodePorts
// on loopback.
func (l *lab) startEdgeway(name, binary string, nodePort uint16) error {
	const nobody = 65534
	dir := filepath.Join(l.dir, name+".d")
	objects := fmt.Appendf(nil, manifest, endpointAddr.Port(), endpointAddr.Addr(), nodePort)
	err := errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, nobody, nobody),
		os.WriteFile(dir+"/edgeway.toml", fmt.Appendf(nil, configuration, dir), 0o644), //nolint:gosec // see setup
		os.WriteFile(dir+"/service.yaml", objects, 0o644))                              //nolint:gosec // see setup
	if err != nil {
		return fmt.Errorf("configuration of Edgeway: %w", err)
	}
	cmd := exec.Command(binary, "run", "--config", dir+"/edgeway.toml")
	cmd.Env = append(os.Environ(), "STATE_DIRECTORY="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
		AmbientCaps: []uintptr{unix.CAP_NET_ADMIN},
	}
	return l.start(name, nodePort, cmd)
}

// socketProxyd is the path of systemd-socket-proxyd on Debian and Fedora.
const socketProxyd = "/lib/systemd/systemd-socket-proxyd"

// startSocketProxyd passes a socket to systemd-socket-proxyd as systemd does (sd_listen_fds(3)). systemd-socket-proxyd
// must ignore SIGPIPE, as in a systemd service, because version 252 would otherwise exit when it writes to a reset
// connection.
func (l *lab) startSocketProxyd() error {
	const port = 20002
	var config net.ListenConfig
	config.SetMultipathTCP(false) // systemd creates plain TCP sockets
	listener, err := config.Listen(context.Background(), "tcp4", fmt.Sprint("127.0.0.1:", port))
	if err != nil {
		return fmt.Errorf("socket of systemd-socket-proxyd: %w", err)
	}
	defer listener.Close()
	socket, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer socket.Close()
	cmd := exec.Command("sh", "-c", `trap '' PIPE; export LISTEN_FDS=1 LISTEN_PID=$$; exec "$@"`, "sh",
		socketProxyd, "--connections-max=20000", endpointAddr.String())
	cmd.ExtraFiles = []*os.File{socket}
	return l.start("socket-proxyd", port, cmd)
}
