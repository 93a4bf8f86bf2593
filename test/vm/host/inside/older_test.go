package inside

import (
	"strings"
	"testing"
)

// TestOlder tests a host with an nft that is too old for the default backend, and with systemd 247.
func TestOlder(t *testing.T) {
	before := takeInventory(t)
	before.files[legacyLock] = true // the removal of the package runs iptables-legacy
	play(t, []scenario{
		{name: "install starts nothing", run: installStartsNothing, vital: true},
		{name: "start without sources says what is missing", run: startWithoutSources},
		{name: "iptables serves instead of the default backend", run: testOldNFT, vital: true},
		{name: "backend iptables", run: verifyIPTablesServices},
		{name: "only three settings are unknown", run: verifyUnknownSettings},
		{name: "stop leaves the Services", run: testStop},
		{name: "exposure of the unit", run: testExposure},
		{name: "members of the group may ask", run: testGroupAccess},
		{name: "restarts", run: restarts},
		{name: "kill -9", run: killed},
		{name: "stopped process", run: testWatchdog},
		{name: "socket unit, client before the daemon", run: socketBeforeDaemon},
		{name: "socket unit, client starts the daemon", run: socketStartsDaemon},
		{name: "upgrade", run: upgrade},
		{name: "remove keeps configuration and state", run: removeKeeps},
		{name: "purge leaves nothing but the user", run: func(h *host) { purgePackage(h, before) }},
	})
}

// testOldNFT tests that the default configuration works with the iptables backend, and that the status, the doctor and
// the journal say why the daemon does not use nftables.
func testOldNFT(h *host) {
	h.write(siteFile, siteConfig)
	h.write("/etc/edgeway/manifests/web.yaml", Manifest("web", "10.96.0.10", "fd00:96::10", 30080))
	h.run("systemctl", "enable", "--now", "edgeway")
	h.verifyFromHost(clusterIP, clusterIP6, loopback, loopback6)
	h.verifyFromOutside(nodePort)
	h.verifyCapabilities(h.show("edgeway", "MainPID"), netAdmin)
	const reason = "is too old: upgrade the nftables package"
	h.contains(h.run("edgeway", "status"), reason)
	h.contains(h.run("journalctl", "-p", "warning", "-q", "-o", "cat", "SYSLOG_IDENTIFIER=edgeway"), reason)
	for command, want := range map[string]int{"doctor": 0, "probe": 1} {
		out, code := h.try("edgeway", command)
		if h.contains(out, reason); code != want {
			h.Errorf("edgeway %s: exit code %d, want %d", command, code, want)
		}
	}
}

// verifyUnknownSettings fails the test unless systemd knows all settings in the units, except for three settings that
// systemd 248 introduced.
func verifyUnknownSettings(h *host) {
	out := h.run("systemd-analyze", "verify", "--man=no", "edgeway.service", "edgeway-bpf.service",
		"edgeway-ready.target", "edgeway-nodeport@30080.socket", "edgeway-nodeport-ipv6@30080.socket")
	for line := range strings.Lines(out) {
		_, rest, _ := strings.Cut(line, "Unknown key name '")
		switch key, _, _ := strings.Cut(rest, "'"); key {
		case "PrivateIPC", "ExecPaths", "NoExecPaths":
		default:
			h.Errorf("systemd-analyze verify: %s", line)
		}
	}
}
