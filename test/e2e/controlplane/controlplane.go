// Package controlplane pins the versions of the programs that the end-to-end tests and the benchmark use. The package
// has no code of its own: it imports the programs' packages, and the script scripts/controlplane builds the programs.
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	_ "k8s.io/kubectl/pkg/cmd"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/cmd/kube-proxy/app"
)
