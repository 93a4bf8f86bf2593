package inside

import (
	"net/netip"
	"os"
	"strings"
	"testing"
)

func TestRecipes(t *testing.T) {
	play(t, []scenario{
		{name: "a host with Services", run: hostWithServices, vital: true},
		{name: "systemd-resolved", run: testResolved},
		{name: "Docker", run: testDocker},
		{name: "firewalld", run: testFirewalld},
		{name: "ufw", run: testUFW},
	})
}

const (
	webIP  = "10.96.0.20:80"
	webIP6 = "[fd00:96::20]:80"
	dnsIP  = "10.96.0.10"
)

const nameService = `apiVersion: v1
kind: Service
metadata: {name: kube-dns, namespace: kube-system}
spec:
  clusterIP: 10.96.0.10
  ports:
    - {name: dns, protocol: UDP, port: 53}
    - {name: dns-tcp, protocol: TCP, port: 53}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kube-dns
  namespace: kube-system
  labels: {kubernetes.io/service-name: kube-dns}
addressType: IPv4
ports:
  - {name: dns, protocol: UDP, port: 53}
  - {name: dns-tcp, protocol: TCP, port: 53}
endpoints:
  - {addresses: ["10.244.1.11"], conditions: {ready: true}}
`

func hostWithServices(h *host) {
	h.install("1.0.0")
	h.write(siteFile, siteConfig)
	h.write("/etc/edgeway/manifests/web.yaml", Manifest("web", "10.96.0.20", "fd00:96::20", 30080))
	h.write("/etc/edgeway/manifests/dns.yaml", nameService)
	h.run("systemctl", "enable", "--now", "edgeway")
	h.verifyWorking()
}

// followRecipe runs the commands that a guide lists below the line that begins with the program's name. The argument
// replace holds pairs of strings for strings.NewReplacer: a string in the guide, and the string that an operator writes
// instead.
func (h *host) followRecipe(guide, program string, replace ...string) {
	h.Helper()
	text, err := os.ReadFile(jobDir + "/" + guide)
	if err != nil {
		h.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "\n**"+program+"**")
	if !ok {
		h.Fatalf("%s has no recipe for %s", guide, program)
	}
	var commands strings.Builder
	for line := range strings.Lines(rest) {
		command, shown := strings.CutPrefix(line, "    ")
		switch {
		case shown:
			commands.WriteString(command)
		case commands.Len() > 0 && strings.TrimSpace(line) != "":
			script := strings.NewReplacer(replace...).Replace(commands.String())
			h.Logf("%s", script)
			h.run("sh", "-ec", "sudo() { \"$@\"; }\n"+script) // the machine has no sudo
			return
		}
	}
	h.Fatalf("%s shows no command for %s", guide, program)
}

// testResolved tests that systemd-resolved resolves both cluster names and other names, although different DNS
// servers are responsible for them.
func testResolved(h *host) {
	const name, other = "web.default.svc.cluster.local", "www.example.org"
	cluster := serveNames(h.T, h.ep1, netip.MustParseAddrPort("10.244.1.11:53"), name,
		netip.MustParseAddr("10.96.0.20"))
	uplink := serveNames(h.T, h.gateway, netip.MustParseAddrPort("192.0.2.1:53"), other,
		netip.MustParseAddr("198.51.100.80"))
	h.run("resolvectl", "dns", "eth0", "192.0.2.1")
	resolves := func() {
		h.Helper()
		h.run("resolvectl", "flush-caches")
		h.contains(h.run("resolvectl", "query", "--legend=no", name), ": 10.96.0.20")
		h.contains(h.run("resolvectl", "query", "--legend=no", other), ": 198.51.100.80")
		h.contains(h.run("getent", "ahostsv4", name), "10.96.0.20")
	}
	if out, code := h.try("resolvectl", "query", name); code == 0 {
		h.Errorf("the name is known without the recipe: %s", out)
	}
	before := len(uplink.heard(".cluster.local"))

	h.followRecipe("hosts.md", "systemd-resolved")
	resolves()
	h.run("systemctl", "restart", "systemd-resolved")
	resolves()
	if out, code := h.try("resolvectl", "query", "no.default.svc.cluster.local"); code == 0 {
		h.Errorf("a name that does not exist: %s", out)
	}

	// Without a default route, Edgeway adds a route to the ClusterIPs.
	h.run("ip", "route", "del", "default")
	h.Cleanup(func() { h.run("ip", "route", "add", "default", "via", "192.0.2.1") })
	h.eventually("10.96.0.0/12", "ip", "route", "show", "proto", "edgeway")
	resolves()

	if heard := cluster.heard("example.org"); len(heard) > 0 {
		h.Errorf("the cluster's name server was asked for %q", heard)
	}
	if heard := uplink.heard(".cluster.local"); len(heard) != before {
		h.Errorf("the name server of the uplink was asked for %q, %d before the recipe", heard, before)
	}
}
