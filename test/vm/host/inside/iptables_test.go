package inside

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"edgeway/test/netlab"
)

const (
	backendFile = "/etc/edgeway/conf.d/backend.toml"
	legacyDir   = "/etc/systemd/system/edgeway.service.d"
	legacyLock  = "/run/xtables.lock" // iptables-legacy does not remove its lock file
)

const (
	netAdmin       = "0000000000001000"
	netAdminAndRaw = "0000000000003000"
)

// testIPTablesNFT tests the iptables-nft backend, which works in the package's default sandbox.
func testIPTablesNFT(h *host) {
	h.switchBackend("iptables-nft", func() { h.run("systemctl", "reload", "edgeway") })
	h.verifyCapabilities(h.show("edgeway", "MainPID"), netAdmin)
	h.verifyExposure(1.5)
	h.verifyRepair("iptables-nft", func() { h.run("nft", "flush", "ruleset") })
	h.verifyRepair("iptables-nft", func() { h.run("iptables-nft", "-t", "nat", "-F") })
	h.verifyUnnoticed(func() { h.run("systemctl", "restart", "edgeway") })
	h.cleansUp()
}

// testIPTablesLegacy tests the iptables-legacy backend, which needs a drop-in.
func testIPTablesLegacy(h *host) {
	h.run("mkdir", "-p", legacyDir)
	h.run("ln", "-s", "/usr/share/edgeway/iptables-legacy.conf", legacyDir)
	h.Cleanup(func() {
		h.remove(legacyDir)
		h.try("systemctl", "daemon-reload")
		h.try("systemctl", "restart", "edgeway")
		h.remove(legacyLock)
	})
	h.run("systemctl", "daemon-reload")
	h.switchBackend("iptables-legacy", func() { h.run("systemctl", "restart", "edgeway") })
	h.verifyCapabilities(h.show("edgeway", "MainPID"), netAdminAndRaw)
	h.verifyExposure(1.6)
	h.verifyRepair("iptables-legacy", func() {
		for _, table := range []string{"nat", "filter"} {
			h.run("iptables-legacy", "-w", "-t", table, "-F")
			h.run("ip6tables-legacy", "-w", "-t", table, "-F")
		}
	})
	h.switchBackend("nftables", func() { h.run("systemctl", "reload", "edgeway") })
	h.switchBackend("iptables-legacy", func() { h.run("systemctl", "reload", "edgeway") })
	h.cleansUp()
}

// testMissingRights tests that the daemon logs no warning if it lacks permission to read iptables-legacy rules.
func testMissingRights(h *host) {
	h.Cleanup(func() { h.remove(legacyLock) })
	h.run("modprobe", "ip_tables")
	h.run("iptables-legacy", "-w", "-t", "nat", "-L", "-n")
	for _, backend := range []string{"iptables", "nftables"} {
		h.Cleanup(func() { h.remove(backendFile) })
		h.write(backendFile, fmt.Sprintf("[proxy]\nbackend = %q\n", backend))
		h.run("systemctl", "restart", "edgeway")
		h.verifyFromHost(clusterIP, clusterIP6)
		h.verifyCapabilities(h.show("edgeway", "MainPID"), netAdmin)
		h.onlyRulesOf(map[string]string{"iptables": "iptables-nft", "nftables": "nftables"}[backend])
		h.eventually(": healthy\n", "edgeway", "status")
		if out := h.run("journalctl", "-p", "warning", "-q", "-o", "cat",
			"_PID="+h.show("edgeway", "MainPID")); out != "" {
			h.Errorf("warnings with %s: %s", backend, out)
		}
	}
}

// switchBackend changes the backend with a reload or a restart, and fails the test if a client notices the change.
func (h *host) switchBackend(backend string, by func()) {
	h.Helper()
	h.Cleanup(func() { h.remove(backendFile) })
	h.write(backendFile, fmt.Sprintf("[proxy]\nbackend = %q\n", backend))
	open := h.hold(clusterIP, clusterIP6)
	clients := []*trafficClient{
		h.startTraffic(clusterIP, 5*time.Millisecond), h.startTraffic(clusterIP6, 5*time.Millisecond),
	}
	by()
	h.onlyRulesOf(backend)
	for _, c := range clients {
		h.endWithoutFailures(c)
	}
	open.stillServed(h)
	h.verifyFromHost(clusterIP, clusterIP6, loopback, loopback6)
	h.verifyFromOutside(nodePort)
	h.eventually(backend+": ", "systemctl", "show", "-P", "StatusText", "edgeway")
	h.contains(h.run("edgeway", "status"), "backend    "+backend+": in sync")
}

func (h *host) onlyRulesOf(backend string) {
	h.Helper()
	h.waitFor(eventTimeout, func() error {
		for name, has := range h.rules() {
			if has != (name == backend) {
				return fmt.Errorf("the kernel has rules of %s: %v; it should have those of %s alone", name, has,
					backend)
			}
		}
		return nil
	})
}

func (h *host) rules() map[string]bool {
	h.Helper()
	tables := h.run("nft", "list", "tables")
	rules := map[string]bool{
		"nftables": strings.Contains(tables+"\n", " edgeway\n"),
		"ebpf":     strings.Contains(tables, "edgeway-ebpf"),
	}
	for _, variant := range []string{"nft", "legacy"} {
		saved := h.run("iptables-"+variant+"-save") + h.run("ip6tables-"+variant+"-save")
		rules["iptables-"+variant] = strings.Contains(saved, "KUBE-")
	}
	return rules
}

// verifyRepair calls lose, which removes rules that the daemon wrote, and fails the test unless the daemon restores
// them.
func (h *host) verifyRepair(backend string, lose func()) {
	h.Helper()
	before := h.repairs()
	lose()
	took := h.waitFor(eventTimeout, func() error {
		if h.repairs() == before {
			return errors.New("no repair is noted")
		}
		_, err := requestName(clusterIP)
		_, err6 := requestName(clusterIP6) // iptables and ip6tables have separate rules
		return errors.Join(err, err6)
	})
	h.Logf("%s: repaired %.1f s after the loss", backend, took.Seconds())
	h.verifyFromHost(clusterIP, clusterIP6)
	h.verifyFromOutside(nodePort)
}

func (h *host) cleansUp() {
	h.Helper()
	h.run("systemctl", "stop", "edgeway")
	h.verifyFromHost(clusterIP)
	h.run("edgeway", "cleanup")
	for name, has := range h.rules() {
		if has {
			h.Errorf("after edgeway cleanup there are rules of %s", name)
		}
	}
	if left := netlab.WithoutEmptyTables(h.run("nft", "list", "ruleset")); left != "" {
		h.Errorf("after edgeway cleanup there is\n%s", left)
	}
	if err := os.Remove(backendFile); err != nil {
		h.Error(err)
	}
	h.run("systemctl", "start", "edgeway")
	h.verifyFromHost(clusterIP)
}
