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

// iptablesNFT tests the iptables-nft backend, which works in the package's default sandbox.
func iptablesNFT(h *host) {
	h.switches("iptables-nft", func() { h.run("systemctl", "reload", "edgeway") })
	h.privileged(h.show("edgeway", "MainPID"), netAdmin)
	h.exposed(1.5)
	h.repaired("iptables-nft", func() { h.run("nft", "flush", "ruleset") })
	h.repaired("iptables-nft", func() { h.run("iptables-nft", "-t", "nat", "-F") })
	h.unnoticed(func() { h.run("systemctl", "restart", "edgeway") })
	h.cleansUp()
}

// iptablesLegacy tests the iptables-legacy backend, which needs a drop-in.
func iptablesLegacy(h *host) {
	h.run("mkdir", "-p", legacyDir)
	h.run("ln", "-s", "/usr/share/edgeway/iptables-legacy.conf", legacyDir)
	h.Cleanup(func() {
		h.remove(legacyDir)
		h.try("systemctl", "daemon-reload")
		h.try("systemctl", "restart", "edgeway")
		h.remove(legacyLock)
	})
	h.run("systemctl", "daemon-reload")
	h.switches("iptables-legacy", func() { h.run("systemctl", "restart", "edgeway") })
	h.privileged(h.show("edgeway", "MainPID"), netAdminAndRaw)
	h.exposed(1.6)
	h.repaired("iptables-legacy", func() {
		for _, table := range []string{"nat", "filter"} {
			h.run("iptables-legacy", "-w", "-t", table, "-F")
			h.run("ip6tables-legacy", "-w", "-t", table, "-F")
		}
	})
	h.switches("nftables", func() { h.run("systemctl", "reload", "edgeway") })
	h.switches("iptables-legacy", func() { h.run("systemctl", "reload", "edgeway") })
	h.cleansUp()
}

// iptablesWithoutRights tests that the daemon logs no warning if it must not read the rules of iptables-legacy.
func iptablesWithoutRights(h *host) {
	h.Cleanup(func() { h.remove(legacyLock) })
	h.run("modprobe", "ip_tables")
	h.run("iptables-legacy", "-w", "-t", "nat", "-L", "-n")
	for _, backend := range []string{"iptables", "nftables"} {
		h.Cleanup(func() { h.remove(backendFile) })
		h.write(backendFile, fmt.Sprintf("[proxy]\nbackend = %q\n", backend))
		h.run("systemctl", "restart", "edgeway")
		h.answers(clusterIP, clusterIP6)
		h.privileged(h.show("edgeway", "MainPID"), netAdmin)
		h.onlyRulesOf(map[string]string{"iptables": "iptables-nft", "nftables": "nftables"}[backend])
		h.eventually(": healthy\n", "edgeway", "status")
		if out := h.run("journalctl", "-p", "warning", "-q", "-o", "cat", "_PID="+h.show("edgeway", "MainPID")); out != "" {
			h.Errorf("warnings with %s: %s", backend, out)
		}
	}
}

// switches changes the backend with a reload or a restart, and fails the test if a client notices the change.
func (h *host) switches(backend string, by func()) {
	h.Helper()
	h.Cleanup(func() { h.remove(backendFile) })
	h.write(backendFile, fmt.Sprintf("[proxy]\nbackend = %q\n", backend))
	open := h.hold(clusterIP, clusterIP6)
	clients := []*traffic{h.traffic(clusterIP, 5*time.Millisecond), h.traffic(clusterIP6, 5*time.Millisecond)}
	by()
	h.onlyRulesOf(backend)
	for _, c := range clients {
		h.undisturbed(c)
	}
	open.stillServed(h)
	h.answers(clusterIP, clusterIP6, loopback, loopback6)
	h.answersOutside(nodePort)
	h.eventually(backend+": ", "systemctl", "show", "-P", "StatusText", "edgeway")
	h.contains(h.run("edgeway", "status"), "backend    "+backend+": in sync")
}

func (h *host) onlyRulesOf(backend string) {
	h.Helper()
	h.within(patience, func() error {
		for name, has := range h.rules() {
			if has != (name == backend) {
				return fmt.Errorf("the kernel has rules of %s: %v; it should have those of %s alone", name, has, backend)
			}
		}
		return nil
	})
}

func (h *host) rules() map[string]bool {
	h.Helper()
	tables := h.run("nft", "list", "tables")
	rules := map[string]bool{"nftables": strings.Contains(tables+"\n", " edgeway\n"), "ebpf": strings.Contains(tables, "edgeway-ebpf")}
	for _, variant := range []string{"nft", "legacy"} {
		saved := h.run("iptables-"+variant+"-save") + h.run("ip6tables-"+variant+"-save")
		rules["iptables-"+variant] = strings.Contains(saved, "KUBE-")
	}
	return rules
}

// repaired calls lose, and fails the test unless the daemon notices the loss and restores the rules.
func (h *host) repaired(backend string, lose func()) {
	h.Helper()
	before := h.repairs()
	lose()
	took := h.within(patience, func() error {
		if h.repairs() == before {
			return errors.New("no repair is noted")
		}
		_, err := ask(clusterIP)
		return err
	})
	h.Logf("%s: repaired %.1f s after the loss", backend, took.Seconds())
	h.answers(clusterIP, clusterIP6)
	h.answersOutside(nodePort)
}

func (h *host) cleansUp() {
	h.Helper()
	h.run("systemctl", "stop", "edgeway")
	h.answers(clusterIP)
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
	h.answers(clusterIP)
}
