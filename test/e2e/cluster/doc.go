// Package cluster runs a real Kubernetes control plane for tests: etcd and kube-apiserver, without nodes, kubelets or a
// controller-manager. Tests write the Nodes, Services and EndpointSlices themselves.
//
// The control plane can run in a network namespace (Options.Netns), so simulated hosts can reach the API server over a
// link that a test can cut. The package's clients dial from inside the control plane's network namespace. To reproduce
// faults of a real cluster, a test can stop the API server, restart it on the same port with the same credentials, and
// compact etcd.
//
// scripts/controlplane builds the programs, and the function Programs finds them.
package cluster
