package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"edgeway/daemon/config"
)

const webManifest = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec:
  clusterIP: 10.96.0.10
  ports: [{port: 80}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: web, namespace: shop, labels: {kubernetes.io/service-name: web}}
addressType: IPv4
ports: [{name: "", port: 8080}]
endpoints: [{addresses: [10.77.1.11]}]
`

func TestForeseePlansFromManifests(t *testing.T) {
	dir := t.TempDir()
	cfg := config.Default()
	cfg.Source.File.Paths = []string{filepath.Join(dir, "web.yaml")}
	if _, _, err := predictPlan(cfg); err == nil || !strings.Contains(err.Error(), "web.yaml") {
		t.Errorf("manifests that are not there: %v", err)
	}
	if err := os.WriteFile(cfg.Source.File.Paths[0], []byte(webManifest), 0o600); err != nil {
		t.Fatal(err)
	}
	state, _, err := predictPlan(cfg)
	if err != nil || len(state.Plan.Services) != 1 || state.Plan.Services[0].Name.String() != "shop/web/TCP" {
		t.Errorf("%+v, %v", state.Plan, err)
	}
}

func TestForeseeWithoutLastKnownState(t *testing.T) {
	cfg := config.Default()
	cfg.Source.Kube.Kubeconfig = "/nonexistent/kubeconfig" // predictPlan does not read the kubeconfig
	cfg.Source.LastKnown.Directory = filepath.Join(t.TempDir(), "state")
	if _, _, err := predictPlan(cfg); err == nil || !strings.Contains(err.Error(), "last-known state") {
		t.Errorf("no state: %v", err)
	}
}
