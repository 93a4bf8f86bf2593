// Package controlplane pins the programs that the end-to-end tests and the benchmark run against.
// It holds no code: `go build` of the import paths below gives the binaries (see scripts/controlplane).
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	_ "k8s.io/kubectl/pkg/cmd"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/cmd/kube-proxy/app"
)
