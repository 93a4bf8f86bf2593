package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

const goodManifest = `apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  clusterIP: 10.96.0.10
  ports:
  - name: http
    port: 80
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
ports:
- name: http
  port: 8080
endpoints:
- addresses: [10.244.1.11]
`

func TestManifestMistakes(t *testing.T) {
	t.Parallel()
	const file = "m/web.yaml"
	service := func(line int, field string) string {
		return fmt.Sprintf("DIR/m/web.yaml:%d: Service default/web: %s", line, field)
	}
	slice := func(line int, field string) string {
		return fmt.Sprintf("DIR/m/web.yaml:%d: EndpointSlice default/web-1: %s", line, field)
	}
	document := func(line int, field string) string { return fmt.Sprintf("DIR/m/web.yaml:%d: %s", line, field) }
	const unserved = "DIR/m/web.yaml:1: Service default/web: spec.ports[0]"
	for _, m := range []mistake{
		{"tab", file, "  name: web\n", "\tname: web\n", "DIR/m/web.yaml:4", "", false},
		{"no separator", file, "---\n", "", "DIR/m/web.yaml:10", "---", false},
		{"open bracket", file, "[10.244.1.11]", "[10.244.1.11", "DIR/m/web.yaml:21", "", false},
		{"text", file, "", "web\n", "DIR/m/web.yaml:1", "", false},
		{"JSON", "m/web.json", "", `{"apiVersion": "v1"`, "DIR/m/web.json:1", "", false},
		{"no kind", file, "kind: Service\n", "", "DIR/m/web.yaml:1: kind", "", false},
		{"no apiVersion", file, "apiVersion: v1\n", "", document(1, "apiVersion"), "discovery.k8s.io/v1", false},
		{"misspelt kind", file, "kind: Service", "kind: Servce", document(2, "kind"), "api-resources", false},
		{"plural kind", file, "kind: EndpointSlice", "kind: EndpointSlices", document(12, "kind"), "api-resources", false},
		{"version of another kind", file, "apiVersion: discovery.k8s.io/v1", "apiVersion: v1", document(12, "kind"), "api-resources", false},
		{"group without a version", file, "apiVersion: discovery.k8s.io/v1", "apiVersion: discovery.k8s.io", document(12, "kind"), "api-resources", false},
		{"old version", file, "k8s.io/v1", "k8s.io/v1beta1", document(11, "apiVersion"), "discovery.k8s.io/v1", false},
		{"no name", file, "  name: web-1\n", "", "DIR/m/web.yaml:13: metadata.name", "", false},
		{"name with capitals", file, "name: web-1", "name: Web-1", document(14, "metadata.name"), "", false},
		{"no clusterIP", file, "  clusterIP: 10.96.0.10\n", "", document(5, "spec.clusterIP"), "", false},
		{"clusterIP that is none", file, "10.96.0.10", "10.96.0.300", service(6, "spec.clusterIP"), "", false},
		{"wrong case", file, "clusterIP", "clusterIp", document(6, "spec.clusterIp"), "correct its name", false},
		{"misspelt field", file, "ports:", "prots:", document(7, "spec.prots"), "correct its name", false},
		{"field of another kind", file, "  ports:", "  replicas: 2\n  ports:", document(7, "spec.replicas"), "", false},
		{"name for a port", file, "port: 80\n", "port: http\n", document(7, "spec.ports.port"), "", false},
		{"port 0", file, "port: 80\n", "port: 0\n", service(9, "spec.ports[0].port"), "", false},
		{"ports without names", file, "port: 80\n", "port: 80\n  - port: 81\n", service(10, "spec.ports[1].name"), "", false},
		{"one name for two ports", file, "port: 80\n", "port: 80\n  - {name: http, port: 81}\n", service(10, "spec.ports[1].name"), "", false},
		{"one port twice", file, "port: 80\n", "port: 80\n  - {name: web, port: 80}\n", service(10, "spec.ports[1]"), "", false},
		{"NodePort of a ClusterIP", file, "port: 80\n", "port: 80\n    nodePort: 30080\n", service(10, "spec.ports[0].nodePort"), "", false},
		{"NodePort without one", file, "spec:\n", "spec:\n  type: NodePort\n", service(9, "spec.ports[0].nodePort"), "", false},
		{"unknown type", file, "spec:\n", "spec:\n  type: Nodeport\n", service(6, "spec.type"), "", false},
		{"unknown policy", file, "spec:\n", "spec:\n  internalTrafficPolicy: local\n", service(6, "spec.internalTrafficPolicy"), "Cluster", false},
		{"policy without a way in", file, "spec:\n", "spec:\n  externalTrafficPolicy: Local\n", service(6, "spec.externalTrafficPolicy"), "", false},
		{"unknown affinity", file, "spec:\n", "spec:\n  sessionAffinity: clientIP\n", service(6, "spec.sessionAffinity"), "ClientIP", false},
		{"external range", file, "spec:\n", "spec:\n  externalIPs: [203.0.113.0/24]\n", service(6, "spec.externalIPs[0]"), "", false},
		{"loopback", file, "10.244.1.11", "127.0.0.1", slice(21, "endpoints[0].addresses[0]"), "127.0.0.1", false},
		{"address with a port", file, "10.244.1.11", "'10.244.1.11:8080'", slice(21, "endpoints[0].addresses[0]"), "", false},
		{"addresses alone", file, "- addresses: [10.244.1.11]", "- 10.244.1.11", document(20, "endpoints"), "", false},
		{"text for a condition", file, "- addresses", "- conditions: {ready: \"true\"}\n  addresses", document(20, "endpoints.conditions.ready"), "", false},
		{"other family of the addresses", file, "IPv4", "IPv6", slice(21, "endpoints[0].addresses[0]"), "IPv6", false},
		{"family without a ClusterIP", file, "IPv4\nports:\n- name: http\n  port: 8080\nendpoints:\n- addresses: [10.244.1.11]", "IPv6\nports:\n- name: http\n  port: 8080\nendpoints:\n- addresses: ['fd00::1']", unserved, "addressType IPv4", true},
		{"unknown address type", file, "IPv4", "ipv4", slice(16, "addressType"), "FQDN", false},
		{"no label", file, "kubernetes.io/service-name", "app", slice(15, "metadata.labels[kubernetes.io/service-name]"), "", false},
		{"orphan", file, "service-name: web", "service-name: wbe", unserved, "kubernetes.io/service-name: web", true},
		{"another namespace", file, "  name: web-1\n", "  name: web-1\n  namespace: shop\n", unserved, "kubernetes.io/service-name: web", true},
		{"another name of the port", file, "- name: http\n  port: 8080", "- name: web\n  port: 8080", unserved, "\"web\"/TCP", true},
		{"another protocol of the port", file, "    port: 80\n", "    port: 80\n    protocol: UDP\n", unserved, "\"http\"/UDP", true},
		{"no ports", file, "ports:\n- name: http\n  port: 8080\n", "", unserved, "no port", true},
		{"Endpoints", file, "discovery.k8s.io/v1\nkind: EndpointSlice", "v1\nkind: Endpoints", unserved, "kubernetes.io/service-name: web", true},
		{"no endpoint is ready", file, "- addresses", "- conditions: {ready: false}\n  addresses", unserved, "ready", true},
		{"no slice", file, goodManifest[strings.Index(goodManifest, "---"):], "", unserved, "kubernetes.io/service-name: web", true},
		{"unknown hint", file, "  name: web\n", "  name: web\n  annotations: {edgeway.io/traffic-hint: long}\n", service(5, "metadata.annotations[edgeway.io/traffic-hint]"), "LongLived", false},
		{"misspelt annotation", file, "  name: web\n", "  name: web\n  annotations: {edgeway.io/traffic-hints: LongLived}\n", service(5, "metadata.annotations[edgeway.io/traffic-hints]"), "write edgeway.io/traffic-hint", false},
		{"unknown distribution", file, "spec:\n", "spec:\n  trafficDistribution: Near\n", service(6, "spec.trafficDistribution"), "PreferClose", false},
		{"one object twice", "m/web2.yaml", "", goodManifest[:strings.Index(goodManifest, "---")], "DIR/m/web2.yaml:1", "DIR/m/web.yaml:1", false},
		{"one ClusterIP for two", "m/zeta.yaml", "", strings.ReplaceAll(goodManifest, "web", "zeta"), "DIR/m/zeta.yaml:1: Service default/zeta: spec.clusterIPs", "Service default/web", false},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.check(t, map[string]string{"edgeway.toml": goodConfig, file: goodManifest})
		})
	}
}

// kubectl's output contains more fields than a proxy needs, and some of them resemble mistakes.
func TestValidManifestsCauseNoFinding(t *testing.T) {
	t.Parallel()
	for name, more := range map[string]string{
		"nothing more": "",
		"other kinds":  "---\napiVersion: v1\nkind: Pod\nmetadata: {name: web}\n---\napiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\n---\napiVersion: serving.knative.dev/v1\nkind: Service\nmetadata: {name: k}\n",
		"headless": "---\napiVersion: v1\nkind: Service\nmetadata: {name: db}\nspec: {clusterIP: None, ports: [{port: 1}]}\n" +
			strings.ReplaceAll(goodManifest[strings.Index(goodManifest, "---"):], "web", "db"),
		"slice without endpoints": strings.Replace(strings.Replace(goodManifest[strings.Index(goodManifest, "---"):], "web-1", "web-2", 1), "- addresses: [10.244.1.11]", "", 1),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			place(t, filepath.Join(dir, "edgeway.toml"), goodConfig)
			place(t, filepath.Join(dir, "m", "web.yaml"), goodManifest+more)
			code, stdout, stderr := run(t, "config", "check", "--config", filepath.Join(dir, "edgeway.toml"))
			if code != exitOK || stderr != "" || stdout != "The configuration is valid.\n" {
				t.Errorf("exit %d, out %q:\n%s", code, stdout, stderr)
			}
		})
	}
}

func TestExamplesAreValid(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "config", "check", "--config", "../../etc/edgeway/examples/lab.toml")
	if code != exitOK || stderr != "" || stdout != "The configuration is valid.\n" {
		t.Errorf("exit %d, out %q:\n%s", code, stdout, stderr)
	}
}
