// Package controlplane pins the versions of the programs that the end-to-end tests and the benchmark use. The package
// has no code of its own: `go build` of the import paths below builds the programs (see scripts/controlplane).
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	_ "k8s.io/kubectl/pkg/cmd"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/cmd/kube-proxy/app"
)
