package main

import (
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

func TestMistakesInManifests(t *testing.T) {
	t.Parallel()
	const file, service, slice = "m/web.yaml", ": Service default/web: ", ": EndpointSlice default/web-1: "
	at := func(line string) string { return "DIR/m/web.yaml:" + line }
	for _, m := range []mistake{
		{"tab", file, "  name: web\n", "\tname: web\n", at(""), "it does not parse", "indent with spaces", false},
		{"no separator", file, "---\n", "", at("10"), `"apiVersion" already set`, "separate two documents by a line with ---", false},
		{"open bracket", file, "[10.244.1.11]", "[10.244.1.11", at(""), "it does not parse", "correct the YAML there", false},
		{"text", file, "", "web\n", at("1"), "is not an object with apiVersion and kind", "begin with apiVersion: and kind:", false},
		{"JSON", "m/web.json", "", `{"apiVersion": "v1"`, "DIR/m/web.json:1", "it does not parse", "correct the YAML there", false},
		{"no kind", file, "kind: Service\n", "", at("1: kind"), "it is missing", "write kind: Service", false},
		{"no apiVersion", file, "apiVersion: v1\n", "", at("1") + service + "apiVersion", "it is missing", "write v1 for a Service", false},
		{"misspelt kind", file, "kind: Service", "kind: Servce", at("2") + service, `the kind "Servce" is unknown`, "did you mean Service?", false},
		{"plural kind", file, "kind: EndpointSlice", "kind: EndpointSlices", at("12") + slice, "is unknown", "did you mean EndpointSlice?", false},
		{"version of another kind", file, "apiVersion: discovery.k8s.io/v1", "apiVersion: v1", at("11") + slice + "apiVersion", `"v1" has no kind EndpointSlice`, "write apiVersion: discovery.k8s.io/v1", false},
		{"group without a version", file, "apiVersion: discovery.k8s.io/v1", "apiVersion: discovery.k8s.io", at("11") + slice, "has no kind EndpointSlice", "write apiVersion: discovery.k8s.io/v1", false},
		{"old version", file, "k8s.io/v1", "k8s.io/v1beta1", at("11") + slice + "apiVersion", "is not supported", "it must be discovery.k8s.io/v1", false},
		{"no name", file, "  name: web-1\n", "", at("13"), "metadata.name: it is missing", "give the object a name", false},
		{"name with capitals", file, "name: web-1", "name: Web-1", at("14"), "metadata.name", "must consist of lower case", false},
		{"no clusterIP", file, "  clusterIP: 10.96.0.10\n", "", at("5") + service + "spec.clusterIP", "is required", "nobody allocates one for a manifest", false},
		{"clusterIP out of the ranges", file, "10.96.0.10", "10.97.0.10", at("6") + service, "10.97.0.10 is in no range of Services (10.96.0.0/16)", "proxy.service_cidrs", false},
		{"clusterIP that is none", file, "10.96.0.10", "10.96.0.300", at("6") + service, "is not an IP address", "write one, as in 10.96.0.10", false},
		{"wrong case", file, "clusterIP", "clusterIp", at("6") + service, "unknown field", "did you mean clusterIP?", false},
		{"misspelt field", file, "ports:", "prots:", at("7") + service, "spec.prots: unknown field", "did you mean ports?", false},
		{"field of another kind", file, "  ports:", "  replicas: 2\n  ports:", at("7") + service, "spec.replicas: unknown field", "remove it", false},
		{"name for a port", file, "port: 80\n", "port: http\n", at("7") + service, "a string is not allowed here", "kubectl explain", false},
		{"port 0", file, "port: 80\n", "port: 0\n", at("9") + service + "spec.ports[0].port", "0 is not", "1 to 65535", false},
		{"ports without names", file, "port: 80\n", "port: 80\n  - port: 81\n", at("10") + service, "spec.ports[1].name", "a name is required", false},
		{"one name for two ports", file, "port: 80\n", "port: 80\n  - {name: http, port: 81}\n", at("10") + service, "is the name of another port too", "give each port its own name", false},
		{"one port twice", file, "port: 80\n", "port: 80\n  - {name: web, port: 80}\n", at("10") + service, "80/TCP is there twice", "remove one", false},
		{"NodePort of a ClusterIP", file, "port: 80\n", "port: 80\n    nodePort: 30080\n", at("10") + service, "a Service of type ClusterIP may not have it", "type: NodePort", false},
		{"NodePort without one", file, "spec:\n", "spec:\n  type: NodePort\n", at("9") + service + "spec.ports[0].nodePort", "it is required", "nobody allocates one", false},
		{"unknown type", file, "spec:\n", "spec:\n  type: Nodeport\n", at("6") + service + "spec.type", `"Nodeport" is unknown`, "write ClusterIP, NodePort or LoadBalancer", false},
		{"unknown policy", file, "spec:\n", "spec:\n  internalTrafficPolicy: local\n", at("6") + service, `"local" is neither`, "Cluster nor Local", false},
		{"policy without a way in", file, "spec:\n", "spec:\n  externalTrafficPolicy: Local\n", at("6") + service, "only a Service that can be reached from outside may have it", "remove it, or change spec.type", false},
		{"unknown affinity", file, "spec:\n", "spec:\n  sessionAffinity: clientIP\n", at("6") + service, `"clientIP" is neither`, "None nor ClientIP", false},
		{"external range", file, "spec:\n", "spec:\n  externalIPs: [203.0.113.0/24]\n", at("6") + service + "spec.externalIPs[0]", "is not an IP address", "write one", false},
		{"loopback", file, "10.244.1.11", "127.0.0.1", at("21") + slice + "endpoints[0].addresses[0]", "loopback range is not allowed", "other hosts can reach", false},
		{"address with a port", file, "10.244.1.11", "'10.244.1.11:8080'", at("21") + slice, "is not an IP address", "write one", false},
		{"addresses alone", file, "- addresses: [10.244.1.11]", "- 10.244.1.11", at("20") + slice + "endpoints", "a string is not allowed here", "kubectl explain", false},
		{"text for a condition", file, "- addresses", "- conditions: {ready: \"true\"}\n  addresses", at("20") + slice, "a string is not allowed here", "kubectl explain", false},
		{"other family of the addresses", file, "IPv4", "IPv6", at("21") + slice, "10.244.1.11 is not an IPv6 address", "EndpointSlice of its own with addressType: IPv4", false},
		{"family without a ClusterIP", file, "IPv4\nports:\n- name: http\n  port: 8080\nendpoints:\n- addresses: [10.244.1.11]", "IPv6\nports:\n- name: http\n  port: 8080\nendpoints:\n- addresses: ['fd00::1']", at("16") + slice, "it is IPv6, but Service default/web has no such ClusterIP", "spec.clusterIPs", false},
		{"unknown address type", file, "IPv4", "ipv4", at("16") + slice, `"ipv4" is none of`, "IPv4, IPv6 and FQDN", false},
		{"no label", file, "kubernetes.io/service-name", "app", at("15") + slice, "the label is missing", "set it to the name of the Service", false},
		{"orphan", file, "service-name: web", "service-name: wbe", at("15") + slice, "no manifest has Service default/wbe", "did you mean Service default/web?", false},
		{"orphan of nobody", file, "service-name: web", "service-name: database", at("15") + slice, "no manifest has Service default/database", "write this Service, or remove", false},
		{"another namespace", file, "  name: web-1\n", "  name: web-1\n  namespace: shop\n", at("16: EndpointSlice shop/web-1"), "no manifest has Service shop/web", "did you mean Service default/web?", false},
		{"another name of the port", file, "- name: http\n  port: 8080", "- name: web\n  port: 8080", at("17") + slice, `the port "http" (TCP) of Service default/web matches nothing: there are only "web" (TCP)`, `the name "http"`, false},
		{"another protocol of the port", file, "    port: 80\n", "    port: 80\n    protocol: UDP\n", at("18") + slice, `the port "http" (UDP) of Service default/web matches nothing`, "the protocol UDP", false},
		{"no ports", file, "ports:\n- name: http\n  port: 8080\n", "", at("11") + slice, "there are no ports", "give a port of the EndpointSlice", false},
		{"no slice", file, goodManifest[strings.Index(goodManifest, "---"):], "", at("1") + service, "connections are rejected", "write one with the label kubernetes.io/service-name: web", true},
		{"unknown hint", file, "  name: web\n", "  name: web\n  annotations: {edgeway.io/traffic-hint: long}\n", at("5") + service, `"long" is not`, "LongLived", false},
		{"one object twice", "m/web2.yaml", "", goodManifest[:strings.Index(goodManifest, "---")], "DIR/m/web2.yaml:1" + service, "DIR/m/web.yaml:1 has it already", "remove one of them", false},
		{"one ClusterIP for two", "m/zeta.yaml", "", strings.ReplaceAll(goodManifest, "web", "zeta"), "DIR/m/zeta.yaml:5: Service default/zeta", "10.96.0.10:80/TCP belongs to Service default/web", "give one of the two another address", false},
	} {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			m.check(t, map[string]string{"edgeway.toml": goodConfig, file: goodManifest})
		})
	}
}

// What is offered in place of Endpoints is in order, and so is what has both.
func TestEndpointsGetASuccessor(t *testing.T) {
	t.Parallel()
	service := goodManifest[:strings.Index(goodManifest, "---")]
	const old = `---
apiVersion: v1
kind: Endpoints
metadata: {name: web}
subsets:
- addresses: [{ip: 10.244.1.11, nodeName: edge-1}, {ip: 'fd00::11'}]
  notReadyAddresses: [{ip: 10.244.1.12}]
  ports: [{name: http, port: 8080}]
`
	dir := t.TempDir()
	config := filepath.Join(dir, "edgeway.toml")
	place(t, config, goodConfig)
	check := func(manifest string) (code int, stderr string) {
		place(t, filepath.Join(dir, "m", "web.yaml"), manifest)
		code, _, stderr = run(t, "config", "check", "--config", config)
		return code, stderr
	}
	code, stderr := check(service + old)
	head, offer, ok := strings.Cut(stderr, "write this instead:\n")
	if code != exitUsage || !ok || !strings.Contains(head, filepath.Join(dir, "m/web.yaml")+":11: Endpoints default/web: objects of the kind Endpoints are not used") {
		t.Fatalf("exit %d:\n%s", code, stderr)
	}
	for _, want := range []string{"addressType: IPv4", "- 10.244.1.11\n", "nodeName: edge-1", "- 10.244.1.12\n", "ready: false", "addressType: IPv6", "- fd00::11\n", "port: 8080"} {
		if !strings.Contains(offer, want) {
			t.Errorf("no %q in what is offered:\n%s", want, offer)
		}
	}
	both := strings.Replace(service, "clusterIP: 10.96.0.10", "clusterIP: 10.96.0.10\n  clusterIPs: [10.96.0.10, 'fd00:96::10']", 1)
	if code, stderr := check(both + "---\n" + offer); code != exitOK || stderr != "" {
		t.Errorf("with what is offered: exit %d:\n%s", code, stderr)
	}
	if code, stderr := check(goodManifest + old); code != exitOK || stderr != "" {
		t.Errorf("with both kinds: exit %d:\n%s", code, stderr)
	}
}

// What kubectl prints has more than a proxy needs, and much of it may look like a mistake.
func TestWhatIsNoMistake(t *testing.T) {
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

func TestTheExamplesHaveNoMistake(t *testing.T) {
	t.Parallel()
	code, stdout, stderr := run(t, "config", "check", "--config", "../../etc/edgeway/examples/lab.toml")
	if code != exitOK || stderr != "" || stdout != "The configuration is valid.\n" {
		t.Errorf("exit %d, out %q:\n%s", code, stdout, stderr)
	}
}
