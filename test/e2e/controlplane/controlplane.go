// Package controlplane pins the versions of the programs against which the end-to-end tests and the benchmark run.
// The package contains no code: `go build` of the import paths below builds the programs (see scripts/controlplane).
package controlplane

import (
	_ "go.etcd.io/etcd/server/v3"
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	_ "k8s.io/kubectl/pkg/cmd"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
	_ "k8s.io/kubernetes/cmd/kube-proxy/app"
)
