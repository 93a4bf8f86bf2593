// Package cluster runs a real Kubernetes control plane for tests: etcd and kube-apiserver, without
// nodes, kubelets or a controller-manager. A test writes Nodes, Services and EndpointSlices itself.
//
// The programs may run in a network namespace (Options.Netns), so that simulated hosts reach the API
// server over a link that a test can cut; clients made by the package dial from inside of it. The
// API server can be stopped, paused (a watch that goes silent), started again on the same port with
// the same credentials, and etcd can be compacted, so that faults of a real cluster can be staged.
//
// scripts/controlplane builds the programs; Programs finds them.
package cluster
