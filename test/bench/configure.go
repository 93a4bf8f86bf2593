package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/test/bench/kit"
	"edgeway/test/e2e/cluster"
)

// oursName and peerName are the programs' names in the results. options.peer returns the peer's full name.
const (
	oursName = "edgeway"
	peerName = "peer"
)

const stateDir = "lastknown"

const withSlack = `echo 1000000 > /proc/$$/timerslack_ns && exec "$@"`

// newEdgeway configures Edgeway with its default settings, except for paths and for settings that would affect the
// whole machine. If path is empty, newEdgeway builds Edgeway from this tree.
func (b *bench) newEdgeway(ctx context.Context, name, path string) (*program, error) {
	p, err := b.newProgram(ctx, name)
	if err != nil {
		return nil, err
	}
	if path == "" {
		path = filepath.Join(b.dir, "edgeway")
		if err := kit.Build(ctx, path); err != nil {
			return nil, err
		}
	}
	p.argv = []string{"sh", "-c", withSlack, "sh", path, "run", "--config", p.file("edgeway.toml")}
	return p, p.write("edgeway.toml", fmt.Sprintf(`version = 1
[node]
name = "bench-edge"
[source.kube]
kubeconfig = %q
[source.lastknown]
directory = %q
[proxy]
backend = %q
[conntrack]
max_per_core = 0
[metrics]
address = "127.0.0.1:10249"
[control]
socket = %q
`, b.cluster.Kubeconfig(cluster.Edgeway), p.file(stateDir), b.opts.mode.name, p.file("control.sock")))
}

// newKubeProxy configures kube-proxy to be as fast as possible, with a minSyncPeriod of 1 ms. newKubeProxy creates a
// Node object, because kube-proxy would otherwise wait for half a minute at each start.
func (b *bench) newKubeProxy(ctx context.Context, path string) (*program, error) {
	p, err := b.newProgram(ctx, peerName)
	if err != nil {
		return nil, err
	}
	client, err := b.cluster.Client(cluster.Admin)
	if err != nil {
		return nil, err
	}
	nodes := client.Core.Nodes()
	node, err := nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "peer"}}, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("Node of %s: %w", p.name, err)
	}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: p.host.addr.String()}}
	if _, err := nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("Node of %s: %w", p.name, err)
	}
	if m := b.opts.mode; m.variant != "" {
		if err := p.linkIPTables(m.variant); err != nil {
			return nil, err
		}
	}
	p.argv = []string{path, "--config=" + p.file("config.yaml")}
	// kube-proxy also creates Events, which requires an administrator's rights on this API server.
	return p, p.write("config.yaml", fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %[1]s
hostnameOverride: peer
clientConnection: {kubeconfig: %[2]q}
%[1]s: {minSyncPeriod: 1ms, syncPeriod: %[3]s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, b.opts.mode.peerMode, b.cluster.Kubeconfig(cluster.Admin), b.opts.mode.syncPeriod))
}

// linkIPTables creates a directory with links to the programs of one iptables variant. The links have names without the
// variant, such as iptables-restore, and the directory comes first in the PATH of the measured program.
func (p *program) linkIPTables(variant string) error {
	dir := p.file("bin")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return fmt.Errorf("links to iptables: %w", err)
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, suffix := range []string{"", "-save", "-restore"} {
			path, err := exec.LookPath(strings.Join([]string{family, variant}, "-") + suffix)
			if err == nil {
				err = os.Symlink(path, filepath.Join(dir, family+suffix))
			}
			if err != nil {
				return fmt.Errorf("links to iptables: %w", err)
			}
		}
	}
	p.env = append(p.env, "PATH="+dir+":"+os.Getenv("PATH"))
	return nil
}
