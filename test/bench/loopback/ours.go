package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"edgeway/test/bench/kit"
)

const oursName = "edgeway"

const ourNodePort = 30080

// newOurs is Edgeway with one Service of type NodePort, from files. Its configuration is the default but
// for loopback, paths, and what would change the machine. binary empty: build it from this repository.
func newOurs(ctx context.Context, dir, binary string) (*relay, error) {
	if binary == "" {
		binary = filepath.Join(dir, "edgeway")
		if err := kit.Build(ctx, binary); err != nil {
			return nil, err
		}
	}
	config, manifests := filepath.Join(dir, "edgeway.toml"), filepath.Join(dir, "service.yaml")
	files := map[string]string{
		config: fmt.Sprintf(`version = 1
[node]
name = "bench-edge"
[source.file]
paths = [%q]
[source.lastknown]
enabled = false
[proxy]
nodeport_addresses = ["localhost"]
[conntrack]
max_per_core = 0
[control]
socket = %q
`, manifests, filepath.Join(dir, "control.sock")),
		manifests: fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: bench, namespace: default}
spec:
  type: NodePort
  clusterIP: 10.96.0.10
  clusterIPs: [10.96.0.10]
  ipFamilies: [IPv4]
  ports: [{protocol: TCP, port: 80, targetPort: %[1]d, nodePort: %[2]d}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: bench-1
  namespace: default
  labels: {kubernetes.io/service-name: bench}
addressType: IPv4
ports: [{protocol: TCP, port: %[1]d}]
endpoints: [{addresses: [%[3]s], conditions: {ready: true}}]
`, endpointAddr.Port(), ourNodePort, endpointAddr.Addr()),
	}
	for path, content := range files {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			return nil, fmt.Errorf("configuration of Edgeway: %w", err)
		}
	}
	return &relay{name: oursName, addr: loopback(ourNodePort), argv: []string{binary, "run", "--config", config}}, nil
}
