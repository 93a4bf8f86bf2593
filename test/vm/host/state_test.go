package host

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"edgeway/test/e2e/cluster"
	"edgeway/test/netlab"
	"edgeway/test/vm/host/inside"
	"edgeway/test/vm/vmtest"
)

// apiAddr is the API server's address. The virtual machine has a link to this address, but no host at the other end
// responds.
var apiAddr = netip.MustParseAddr("198.51.100.7")

// state holds the paths of a daemon's state directory and kubeconfig.
type state struct{ dir, kubeconfig string }

// saveLastKnown runs the daemon on another host until the daemon has saved its state. A real API server provides one
// Service.
func saveLastKnown(t *testing.T) state {
	t.Helper()
	lab := netlab.New(t, netlab.Options{})
	api := lab.Host("api", apiAddr)
	plane, err := cluster.Start(t.Context(), cluster.Options{Netns: api.Netns, Addr: apiAddr})
	if err != nil {
		t.Fatal(err)
	}
	defer plane.Stop() // a running control plane would slow down the virtual machines
	load(t, plane, inside.Manifest("web", "10.96.0.10", "fd00:96::10", 30080))

	tmp := t.TempDir()
	s := state{dir: filepath.Join(tmp, "state"), kubeconfig: filepath.Join(tmp, "kubeconfig")}
	raw, err := os.ReadFile(plane.Kubeconfig(cluster.Edgeway))
	if err != nil {
		t.Fatal(err)
	}
	// In the virtual machine, the user edgeway must also be able to read the kubeconfig.
	if err := os.WriteFile(s.kubeconfig, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	config := filepath.Join(tmp, "edgeway.toml")
	socket := filepath.Join(tmp, "socket")
	text := strings.NewReplacer("KUBECONFIG", s.kubeconfig, "STATE", s.dir, "SOCKET", socket).Replace(`version = 1
[source.kube]
kubeconfig = "KUBECONFIG"
[source.lastknown]
directory = "STATE"
[control]
socket = "SOCKET"
`)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	serveOnce(t, lab.Node, vmtest.Build(t, "edgeway/cmd/edgeway"), config)
	return s
}

// serveOnce runs the daemon until it serves the Service and has saved its state.
func serveOnce(t *testing.T, node *netlab.Host, program, config string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var log bytes.Buffer
	daemon := node.Command(ctx, program, "run", "--config", config)
	daemon.Stdout, daemon.Stderr = &log, &log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	var out []byte
	for deadline := time.Now().Add(10 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
		out, _ = node.Command(ctx, program, "status", "--config", config).CombinedOutput()
		if bytes.Contains(out, []byte("4 endpoints")) && bytes.Contains(out, []byte("last-known state on disk")) {
			break
		}
		if time.Now().After(deadline) {
			cancel()
			_ = daemon.Wait()
			t.Fatalf("the state is not saved:\n%s\n%s", out, log.Bytes())
		}
	}
	_ = daemon.Process.Signal(syscall.SIGTERM)
	if err := daemon.Wait(); err != nil {
		t.Fatalf("daemon: %v\n%s", err, log.Bytes())
	}
}

func load(t *testing.T, plane *cluster.Cluster, manifest string) {
	t.Helper()
	admin, err := plane.Client(cluster.Admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Split(manifest, "---\n") {
		var err error
		if strings.Contains(text, "kind: Service\n") {
			var svc corev1.Service
			if err = yaml.Unmarshal([]byte(text), &svc); err == nil {
				_, err = admin.Core.Services(svc.Namespace).Create(t.Context(), &svc, metav1.CreateOptions{})
			}
		} else {
			var slice discoveryv1.EndpointSlice
			if err = yaml.Unmarshal([]byte(text), &slice); err == nil {
				_, err = admin.Discovery.EndpointSlices(slice.Namespace).Create(t.Context(), &slice,
					metav1.CreateOptions{})
			}
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
	}
}
