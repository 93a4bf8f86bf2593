package ipvs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

const program = "/vm/job/edgeway"

func TestMain(m *testing.M) {
	netlab.PeerMain()
	if _, err := os.Stat(program); err != nil {
		fmt.Println("these tests run in a virtual machine: test/vm/jobs starts it")
		return
	}
	os.Exit(m.Run())
}

// changeTimeout is the time limit for a change to take effect, in tests that do not measure speed. The limit is long,
// because the virtual machine is emulated and the host may be busy.
const changeTimeout = 5 * time.Minute

// hangTimeout is the time limit for a response from a program, which may have to wait for a CPU.
const hangTimeout = 2 * time.Minute

// site is a node with the daemon, a client outside the node, and pods that respond with their names.
type site struct {
	*testing.T
	lab          *netlab.Lab
	node, client *netlab.Host
	pods         []*netlab.Host
	visitor      *netlab.Host // a pod that is not an endpoint
	dir          string
	cmd          *exec.Cmd
	log          bytes.Buffer // read log only after the daemon has exited
}

const endpointPort = 8080

func newSite(t *testing.T) *site {
	t.Helper()
	lab := netlab.New(t, netlab.Options{})
	s := &site{T: t, lab: lab, node: lab.Node, dir: t.TempDir()}
	var sources []netip.Addr
	for i := range 24 {
		sources = append(sources, netip.AddrFrom4([4]byte{203, 0, 113, byte(2 + i)}))
	}
	s.client = lab.Host("client", sources...)
	for i := range 3 {
		a := netip.AddrFrom4([4]byte{10, 244, 1, byte(11 + i)})
		pod := lab.Host(fmt.Sprintf("pod-%d", i), a)
		s.must(pod.Serve(pod.Name, netip.AddrPortFrom(a, endpointPort), plan.TCP, plan.UDP))
		s.pods = append(s.pods, pod)
	}
	s.visitor = lab.Host("visitor", netip.MustParseAddr("10.244.1.99"))
	s.must(os.Mkdir(s.file("manifests"), 0o755))
	s.Cleanup(s.end)
	return s
}

func (s *site) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func (s *site) file(name string) string { return filepath.Join(s.dir, name) }

func (s *site) configure(backend, more string) {
	s.Helper()
	s.must(os.WriteFile(s.file("edgeway.toml"), fmt.Appendf(nil, `version = 1
[node]
name = "edge-1"
[source.file]
paths = [%q]
[source.lastknown]
directory = %q
[control]
socket = %q
[health]
address = "127.0.0.1:10256"
[metrics]
address = "127.0.0.1:10249"
[log]
level = "debug"
[proxy]
backend = %q
%s`, s.file("manifests"), s.file("lastknown"), s.file("control.sock"), backend, more), 0o600))
}

// service is a Service with a TCP port and a UDP port. The field pods holds the numbers of the pods that are endpoints.
type service struct {
	name, clusterIP string
	nodePort        int
	annotations     map[string]string
	more            string // more fields of the spec, each preceded by a comma
	pods            []int
}

func (s *site) write(svc service) {
	s.Helper()
	annotations, err := json.Marshal(svc.annotations)
	s.must(err)
	var endpoints []string
	for _, i := range svc.pods {
		endpoints = append(endpoints, fmt.Sprintf("{addresses: [%s], nodeName: node-%d}", s.pods[i].Addrs[0], i))
	}
	kind, tcp, udp := "ClusterIP", "", ""
	if svc.nodePort != 0 {
		kind, tcp, udp = "NodePort", fmt.Sprintf(", nodePort: %d", svc.nodePort),
			fmt.Sprintf(", nodePort: %d", svc.nodePort+1000)
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, annotations: %[2]s}
spec: {type: %[3]s, clusterIP: %[4]s, ports: [{name: a, port: 80%[5]s}, {name: b, port: 53, protocol: UDP%[6]s}]%[7]s}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: a, port: %[8]d}, {name: b, port: %[8]d, protocol: UDP}]
endpoints: [%[9]s]
`, svc.name, annotations, kind, svc.clusterIP, tcp, udp, svc.more, endpointPort, strings.Join(endpoints, ", "))
	// The daemon may read the manifest directory at any time, so the test renames a complete manifest into the
	// directory.
	s.must(os.WriteFile(s.file("new"), []byte(text), 0o600))
	s.must(os.Rename(s.file("new"), s.file("manifests/"+svc.name+".yaml")))
}

func (s *site) start() {
	s.Helper()
	s.cmd = s.node.Command(context.Background(), program, "run", "--config", s.file("edgeway.toml"))
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	s.must(s.cmd.Start())
	s.waitFor(changeTimeout, func() error {
		_, err := s.status()
		return err
	})
}

func (s *site) end() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Signal(os.Interrupt)
	_ = s.cmd.Wait()
	s.cmd = nil
	if s.Failed() {
		s.Logf("the daemon's log:\n%s", s.log.String())
	}
}

func (s *site) onNode(name string, args ...string) string {
	s.Helper()
	out, err := s.node.Command(s.Context(), name, args...).CombinedOutput()
	if err != nil {
		s.Fatalf("%s %v: %v\n%s", name, args, err, out)
	}
	return string(out)
}

func (s *site) edgeway(args ...string) (out string, code int) {
	s.Helper()
	cmd := s.node.Command(s.Context(), program, append(args, "--config", s.file("edgeway.toml"))...)
	raw, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		s.Fatal(err)
	}
	return string(raw), cmd.ProcessState.ExitCode()
}

type status struct {
	Summary string
	Backend struct {
		Name     string
		LastSync time.Time
	}
	Quarantined []quarantined
	Faults      []struct{ ID, Message string }
	Problems    struct{ First []fault.Fault }
}

type quarantined struct{ Name, Error string }

func (s *site) status() (st status, err error) {
	out, _ := s.edgeway("status", "--json")
	if err := json.Unmarshal([]byte(out), &st); err != nil {
		return st, fmt.Errorf("edgeway status: %w in %q", err, out)
	}
	if st.Backend.LastSync.IsZero() {
		return st, errors.New("no sync yet: " + out)
	}
	return st, nil
}

// expectBackend returns a check that fails unless the daemon uses the given backend and the status reports exactly the
// expected faults.
func (s *site) expectBackend(backend string, faults ...string) func() error {
	return func() error {
		st, err := s.status()
		if err != nil {
			return err
		}
		var names []string
		for _, c := range st.Faults {
			names = append(names, c.ID)
		}
		if st.Backend.Name != backend || !slices.Equal(names, faults) {
			return fmt.Errorf("backend %s and faults %v, want %s and %v", st.Backend.Name, st.Faults, backend, faults)
		}
		return nil
	}
}

// waitFor calls check repeatedly until check returns nil, and returns the elapsed time.
func (s *site) waitFor(limit time.Duration, check func() error) time.Duration {
	s.Helper()
	for start := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		err := check()
		took := time.Since(start)
		if err == nil && took <= limit {
			return took
		}
		if took > limit {
			s.Fatalf("after %.1f s: %v", took.Seconds(), err)
		}
	}
}

func at(addr string, port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(port))
}

// expectResponse returns a check that fails unless a server responds to a connection from the given host to the given
// address.
func expectResponse(from *netlab.Host, to netip.AddrPort, p plan.Protocol) func() error {
	// Wait is short, because TCP and the lab's UDP clients send dropped packets again. A long Wait would hide a fault.
	return expectServed(from, netlab.Flow{
		Protocol: p, From: from.Addrs[0], To: to, Wait: 5 * time.Second, ReplyWait: hangTimeout,
	})
}

func expectServed(from *netlab.Host, flow netlab.Flow) func() error {
	return func() error {
		if got := from.Connect(flow); got.Result != netlab.Served {
			return fmt.Errorf("%s to %s/%s: %s", from.Name, flow.To, flow.Protocol, got)
		}
		return nil
	}
}

func loaded() bool {
	_, err := os.Stat("/proc/net/ip_vs")
	return err == nil
}

// writeKubeconfig writes a kubeconfig for an API server that does not respond.
func writeKubeconfig(s *site, address string) error {
	return os.WriteFile(s.file("kubeconfig"), fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "https://%s:6443"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: x, context: {cluster: c, user: u}}]
current-context: x
`, address), 0o600)
}
