package main

import (
	"context"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"edgeway/test/e2e/cluster"
)

// peerName is what figures call the other program, whichever it is; options.peer says that.
const peerName = "peer"

// newPeer configures kube-proxy in the mode of this run as fast as it can be: no waiting between syncs, and
// a Node, without which it waits for half a minute at each start.
func (b *bench) newPeer(ctx context.Context, path string) (*program, error) {
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
	// It also posts events, which only the administrator may do here.
	err = p.write("config.yaml", fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: %[1]s
hostnameOverride: peer
clientConnection: {kubeconfig: %[2]q}
%[1]s: {minSyncPeriod: 1ms, syncPeriod: %[3]s}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`, b.opts.mode.peerMode, b.cluster.Kubeconfig(cluster.Admin), b.opts.mode.peerPeriod))
	if err != nil {
		return nil, err
	}
	p.argv = []string{path, "--config=" + p.file("config.yaml")}
	if b.opts.mode.variant == "" {
		return p, nil
	}
	dir, err := p.linkIPTables(b.opts.mode.variant)
	p.env = append(p.env, "PATH="+dir+":"+os.Getenv("PATH"))
	return p, err
}
