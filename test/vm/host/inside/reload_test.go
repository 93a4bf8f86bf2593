package inside

import (
	"strings"
)

func reloadBadFile(h *host) {
	open := h.hold(clusterIP, loopback)
	before := h.show("edgeway", "MainPID")
	h.write(siteFile, strings.Replace(siteConfig, "service_cidrs", "service_cidr", 1))
	out, code := h.try("systemctl", "reload", "edgeway")
	if code == 0 {
		h.Errorf("reload of a bad file succeeded: %s", out)
	}
	// systemctl itself prints only a reference to the journal, which contains the error.
	h.contains(h.run("journalctl", "-u", "edgeway", "-o", "cat", "-n", "20"), "service_cidr")
	h.run("systemctl", "kill", "-s", "HUP", "edgeway")
	h.eventually("configuration not reloaded", "journalctl", "-u", "edgeway", "-o", "cat", "-n", "5")
	if pid := h.show("edgeway", "MainPID"); pid != before || h.show("edgeway", "ActiveState") != "active" {
		h.Errorf("process %s became %s, %s", before, pid, h.show("edgeway", "ActiveState"))
	}
	h.verifyFromHost(clusterIP, loopback, loopback6)
	open.stillServed(h)
}

func reloadGoodFile(h *host) {
	open := h.hold(clusterIP, loopback, loopback6)
	before := h.show("edgeway", "MainPID")
	cluster, loop := h.startTraffic(clusterIP, 0), h.startTraffic(loopback, 0)
	h.write("/etc/edgeway/more/shop.yaml", Manifest("shop", "10.96.0.20", "fd00:96::20", 30081))
	h.write(siteFile, strings.Replace(siteConfig, `"]`, `", "/etc/edgeway/more"]`, 1))
	h.run("systemctl", "reload", "edgeway")
	for _, addr := range []string{"10.96.0.20:80", "127.0.0.1:30081", "[::1]:30081"} {
		h.waitFor(eventTimeout, func() error {
			_, err := requestName(addr)
			return err
		})
	}
	h.endWithoutFailures(cluster)
	h.endWithoutFailures(loop)
	open.stillServed(h)
	if pid := h.show("edgeway", "MainPID"); pid != before {
		h.Errorf("process %s became %s", before, pid)
	}
}
