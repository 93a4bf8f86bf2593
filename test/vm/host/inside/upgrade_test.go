package inside

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// earlierStateDir is the directory with the earlier version's state.
const earlierStateDir = jobDir + "/before"

// TestUpgrade tests a host with an earlier version's configuration, last-known state and kernel rules, while the API
// server is unreachable.
func TestUpgrade(t *testing.T) {
	play(t, []scenario{
		{name: "reboot after the upgrade", run: servicesFromLastKnown},
		{name: "removed keys are named", run: testRemovedKeys},
		{name: "external IPs need consent", run: testExternalIPs},
		{name: "Services work throughout the upgrade", run: upgradeEarlierVersion},
		{name: "reload after the upgrade", run: func(h *host) {
			h.verifyUnnoticed(func() { h.run("systemctl", "reload", "edgeway") })
			h.verifyStateAge()
		}},
	})
}

// testRemovedKeys tests that `edgeway config check`, the status and a warning in the journal name the line of each
// removed key.
func testRemovedKeys(h *host) {
	site, err := os.ReadFile(siteFile)
	if err != nil {
		h.Fatal(err)
	}
	check, code := h.try("edgeway", "config", "check")
	if code != 2 {
		h.Errorf("config check: exit code %d, want 2", code)
	}
	says := map[string]string{
		"config check": check,
		"status":       h.run("edgeway", "status"),
		"the journal":  h.run("journalctl", "-p", "warning", "-o", "cat", "_PID="+h.show("edgeway", "MainPID")),
	}
	for name, text := range says {
		var missing []string
		for i, line := range strings.Split(string(site), "\n") {
			key, found := strings.CutSuffix(line, " # removed")
			key, _, _ = strings.Cut(key, " ")
			want := fmt.Sprintf("%s:%d: ", siteFile, i+1)
			switch name {
			case "status":
				want = fmt.Sprintf("%s (line %d)", key, i+1)
			case "the journal":
				want = fmt.Sprintf(" line=%d ", i+1)
			}
			if found && !strings.Contains(text, want) {
				missing = append(missing, fmt.Sprintf("%s in line %d", key, i+1))
			}
		}
		if len(missing) > 0 {
			h.Errorf("%s does not name %s:\n%s", name, strings.Join(missing, ", "), text)
		}
	}
}

// testExternalIPs tests that the status names an external IP that the earlier version served, and prints a
// working fix.
func testExternalIPs(h *host) {
	const fix, file = `proxy.allow_external_ips = ["198.51.100.99/32"]`, "/etc/edgeway/conf.d/external.toml"
	h.contains(h.run("edgeway", "status"), fix)
	h.write(file, fix+"\n")
	h.Cleanup(func() {
		h.remove(file)
		h.run("systemctl", "reload", "edgeway")
	})
	h.run("systemctl", "reload", "edgeway")
	h.becomesServed("198.51.100.99:80")
}

// upgradeEarlierVersion starts this version on a host that ran the earlier version. If the earlier version's package is
// missing, the host has only that version's rules.
func upgradeEarlierVersion(h *host) {
	h.run("systemctl", "stop", "edgeway")
	h.run("edgeway", "cleanup")
	h.run("sh", "-c", "rm /var/lib/edgeway/* && cp "+earlierStateDir+
		"/state/* /var/lib/edgeway/ && chown edgeway: /var/lib/edgeway/*")
	if _, err := os.Stat(packageFile("0.9.0")); err != nil {
		h.Logf("by its rules: %v", err)
		h.run("nft", "-f", earlierStateDir+"/rules.nft")
		cluster := h.startTraffic(clusterIP, 20*time.Millisecond)
		open := h.hold(clusterIP, clusterIP6)
		h.verifyFromOutside(nodePort)
		h.run("systemctl", "start", "edgeway")
		h.endWithoutFailures(cluster)
		open.stillServed(h)
	} else {
		h.remove("/etc/edgeway/edgeway.toml") // the file does not belong to the package, so dpkg would prompt
		h.install("0.9.0")
		h.run("systemctl", "start", "edgeway")
		h.contains(h.run("edgeway", "status"), "edgeway 0.9.0: ")
		process := h.show("edgeway", "MainPID")
		h.verifyUnnoticed(func() {
			h.install("1.0.0")
			h.waitForRestart(process)
		})
	}
	h.contains(h.run("edgeway", "status"), "edgeway 1.0.0: ")
	h.verifyFromHost(clusterIP, clusterIP6, loopback, loopback6)
	h.verifyFromOutside(nodePort)
	h.verifyStateAge()
	testRemovedKeys(h)
}
