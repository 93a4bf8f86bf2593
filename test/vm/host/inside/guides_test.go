package inside

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// TestGuides follows the guides' recipes for names, manifests, routes and shared addresses.
func TestGuides(t *testing.T) {
	play(t, []scenario{
		{name: "a host with Services", run: hostWithServices, vital: true},
		{name: "names in the hosts file", run: namesInHostsFile},
		{name: "CoreDNS", run: besideCoreDNS},
		{name: "signed manifests", run: signedManifests},
		{name: "pod routes by timer", run: routesByTimer},
		{name: "pod routes by BIRD", run: routesByBIRD},
		{name: "keepalived", run: besideKeepalived},
	})
}

// oneEndpoint returns the manifest of a Service with port 80, one endpoint, and the given external IP, or no external
// IP if externalIP is "".
func oneEndpoint(name, clusterIP, externalIP, endpoint string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec:
  clusterIP: %[2]s
  externalIPs: [%[3]s]
  ports: [{port: 80, targetPort: 8080}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: default, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: 8080}]
endpoints: [{addresses: [%[4]s]}]
`, name, clusterIP, externalIP, endpoint)
}

// manifest writes a manifest, and removes it at the end of the scenario.
func (h *host) manifest(name, text string) {
	h.Helper()
	path := "/etc/edgeway/manifests/" + name + ".yaml"
	h.write(path, text)
	h.Cleanup(func() { h.remove(path) })
}

// becomesServed waits until the machine itself can reach the given address.
func (h *host) becomesServed(addr string) {
	h.Helper()
	h.waitFor(eventTimeout, func() error {
		_, err := requestName(addr)
		return err
	})
}

func (h *host) notServed(addr string) {
	h.Helper()
	if conn, err := dial(addr, 5*time.Second); err == nil {
		conn.Close()
		h.Fatalf("%s is served without the recipe", addr)
	}
}

// starts runs a oneshot unit. The unit must succeed if ok is true, and fail if ok is false.
func (h *host) starts(unit string, ok bool) {
	h.Helper()
	out, code := h.try("systemctl", "start", unit)
	if (code == 0) != ok {
		logged, _ := h.try("journalctl", "-u", unit, "-o", "cat", "-n", "20")
		h.Errorf("%s: exit code %d: %s\n%s", unit, code, out, logged)
	}
	h.try("systemctl", "reset-failed", unit) // which also resets the limit on starts
}

func (h *host) stopAtEnd(units ...string) {
	h.Cleanup(func() {
		for _, unit := range units {
			h.try("systemctl", "disable", "--now", unit)
		}
	})
}

func (h *host) text(path string) string {
	h.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		h.Fatal(err)
	}
	return string(text)
}
