package inside

import (
	"errors"
	"fmt"
	"strings"
)

// testMemoryLimit limits the unit's memory, and adds Services with 400,000 endpoint-port pairs in total. The memory
// limit also covers the kernel memory that the daemon's rules use. The daemon must survive even if it cannot serve all
// Services. It must also serve a small Service that the test adds later.
func testMemoryLimit(h *host) {
	const dropIns = "/etc/systemd/system/edgeway.service.d"
	h.write(dropIns+"/memory.conf", "[Service]\nMemoryMax=256M\nOOMPolicy=continue\n")
	h.run("systemctl", "daemon-reload")
	h.run("systemctl", "restart", "edgeway")
	const manifests = "/etc/edgeway/manifests/"
	h.Cleanup(func() {
		for i := range 10 {
			h.remove(fmt.Sprintf("%sbig-%d.yaml", manifests, i))
		}
		h.remove(manifests + "late.yaml")
		h.remove(dropIns)
		h.try("systemctl", "daemon-reload")
		h.try("systemctl", "restart", "edgeway")
		h.verifyFromHost(clusterIP, clusterIP6, loopback, loopback6)
	})
	before := h.show("edgeway", "MainPID")
	for i := range 10 {
		h.write(fmt.Sprintf("%sbig-%d.yaml", manifests, i), bigManifest(i, 40, 1000))
	}
	h.write(manifests+"late.yaml", Manifest("late", "10.96.0.30", "fd00:96::30", 30082))
	took := h.waitFor(2*eventTimeout, func() error {
		_, err := requestName("10.96.0.30:80")
		return err
	})
	h.Logf("a Service beside them works after %.1f s", took.Seconds())
	h.waitFor(2*eventTimeout, func() error { // each Service is in force, or the status names it
		if out, _ := h.try("edgeway", "status"); strings.Contains(out, "not in the kernel") {
			return errors.New(out)
		}
		return nil
	})
	h.verifyFromHost(clusterIP, clusterIP6, loopback)
	h.Logf("peak memory of the unit: %s\n%s", h.show("edgeway", "MemoryPeak"), h.run("edgeway", "status"))
	if pid := h.show("edgeway", "MainPID"); pid != before {
		h.Errorf("process %s became %s:\n%s", before, pid,
			h.run("journalctl", "-u", "edgeway", "-o", "cat", "-n", "30"))
	}
}

// bigManifest returns the manifest of a Service with the given number of ports, and of an EndpointSlice with the given
// number of endpoints.
func bigManifest(i, ports, endpoints int) string {
	var service, slice, list strings.Builder
	for p := range ports {
		fmt.Fprintf(&service, "    - {name: p%d, protocol: TCP, port: %d, targetPort: 8080}\n", p, 1000+p)
		fmt.Fprintf(&slice, "  - {name: p%d, protocol: TCP, port: 8080}\n", p)
	}
	for e := range endpoints {
		fmt.Fprintf(&list, "  - {addresses: [\"10.%d.%d.%d\"], conditions: {ready: true}}\n", 200+i, e/250, 1+e%250)
	}
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: big-%[1]d, namespace: default}
spec:
  clusterIP: 10.96.1.%[1]d
  ports:
%[2]s---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: big-%[1]d
  namespace: default
  labels: {kubernetes.io/service-name: big-%[1]d}
addressType: IPv4
ports:
%[3]sendpoints:
%[4]s`, i, service.String(), slice.String(), list.String())
}
