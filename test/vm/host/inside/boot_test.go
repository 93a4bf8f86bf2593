package inside

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func servicesFromLastKnown(h *host) {
	h.becomes("edgeway", "active")
	h.verifyFromHost(clusterIP, clusterIP6, loopback, loopback6)
	h.verifyFromOutside(nodePort)
	h.Logf("ready %s µs after the start of the kernel", h.show("edgeway", "ActiveEnterTimestampMonotonic"))
	// The unit needs-services starts after edgeway-ready.target, and becomes active only if the daemon's nft table
	// exists.
	h.becomes("needs-services", "active")
	h.verifyStateAge()
}

// verifyStateAge fails the test unless the unit's status text and `edgeway status` report the age of the last-known
// state, and the status text also reports that the API server is unreachable.
func (h *host) verifyStateAge() {
	h.Helper()
	says := regexp.MustCompile(`^nftables: [23] Services, [46] endpoints, synced .*; last-known state, saved \d+ \w+ ago; API server unreachable, no contact yet`)
	h.waitFor(eventTimeout, func() error {
		if status := h.show("edgeway", "StatusText"); !says.MatchString(status) {
			return fmt.Errorf("STATUS: %s", status)
		}
		return nil
	})
	h.Logf("STATUS: %s", h.show("edgeway", "StatusText"))
	h.eventually("healthy", "edgeway", "status") // the network has only just come up
	h.contains(h.run("edgeway", "status"), "serving the last-known state, saved ")
}

// startWithReadOnlyVar starts the daemon with a read-only /var, because the kernel remounts a damaged file system
// read-only. The Services must work.
func startWithReadOnlyVar(h *host) {
	h.run("systemctl", "stop", "edgeway")
	h.run("edgeway", "cleanup")
	h.run("mount", "--bind", "/var", "/var")
	h.Cleanup(func() { h.run("umount", "/var") })
	h.run("mount", "-o", "remount,bind,ro", "/var")
	h.run("systemctl", "start", "edgeway")
	h.verifyFromHost(clusterIP, clusterIP6, loopback, loopback6)
	h.Logf("status:\n%s", h.run("edgeway", "status"))
	h.run("systemctl", "stop", "edgeway")
}

// startWithWrongClock starts the daemon on a board without a battery, whose clock is years behind until the board
// reaches a time server. The Services must work, and the daemon must keep working when the clock jumps.
func startWithWrongClock(h *host) {
	h.run("systemctl", "stop", "edgeway")
	h.run("edgeway", "cleanup")
	h.run("touch", "/var/lib/edgeway/lastknown.jsonl") // the image has no modification times
	began := time.Now()                                // with a reading of the monotonic clock
	h.run("date", "-s", "2024-01-02 03:04:05")
	right := func() { h.run("date", "-s", "@"+strconv.FormatInt(began.Add(time.Since(began)).Unix(), 10)) }
	h.Cleanup(right)
	h.run("systemctl", "start", "edgeway")
	h.verifyFromHost(clusterIP, clusterIP6, loopback, loopback6)
	h.Logf("status:\n%s", h.run("edgeway", "status"))
	right()
	h.verifyFromHost(clusterIP, clusterIP6, loopback, loopback6)
	h.verifyStateAge()
	if status := h.show("edgeway", "StatusText"); strings.Contains(status, "days") {
		h.Errorf("STATUS: %s", status)
	}
}

// useKubeconfigCredential restricts the kubeconfig to root and passes the file to the unit as a credential, as
// cluster.md describes.
func useKubeconfigCredential(h *host) {
	raw, err := os.ReadFile("/etc/edgeway/kubeconfig")
	if err != nil {
		h.Fatal(err)
	}
	h.write("/root/edgeway.kubeconfig", string(raw))
	if err := os.Chmod("/root/edgeway.kubeconfig", 0o600); err != nil {
		h.Fatal(err)
	}
	h.remove("/etc/edgeway/kubeconfig")
	h.write("/etc/systemd/system/edgeway.service.d/credential.conf",
		"[Service]\nLoadCredential=kubeconfig:/root/edgeway.kubeconfig\n")
	site, err := os.ReadFile(siteFile)
	if err != nil {
		h.Fatal(err)
	}
	h.write(siteFile, strings.Replace(string(site), "/etc/edgeway/kubeconfig",
		"/run/credentials/edgeway.service/kubeconfig", 1))
	h.run("systemctl", "daemon-reload")
	h.run("systemctl", "restart", "edgeway")
	h.verifyFromHost(clusterIP, loopback)
	h.verifyStateAge() // the daemon uses a state only if it came from the server in the kubeconfig
	h.run("systemctl", "reload", "edgeway")
	h.verifyStateAge()
}

// startWithoutState starts the daemon on a host without a saved state while the API server is unreachable. The daemon
// must wait for the API server, even for longer than TimeoutStartSec=.
func startWithoutState(h *host) {
	const limit = time.Minute // on the slow machine, the daemon needs some of this time until it asks for more
	h.run("systemctl", "stop", "edgeway")
	h.run("edgeway", "cleanup")
	entries, err := os.ReadDir("/var/lib/edgeway")
	if err != nil {
		h.Fatal(err)
	}
	for _, e := range entries {
		h.remove("/var/lib/edgeway/" + e.Name())
	}
	h.write("/etc/systemd/system/edgeway.service.d/limit.conf",
		fmt.Sprintf("[Service]\nTimeoutStartSec=%d\n", int(limit.Seconds())))
	h.run("systemctl", "daemon-reload")
	h.run("systemctl", "start", "--no-block", "edgeway")
	h.becomes("edgeway", "activating")
	before := h.show("edgeway", "MainPID")
	time.Sleep(2 * limit)
	if state, pid := h.show("edgeway", "ActiveState"), h.show("edgeway", "MainPID"); state != "activating" ||
		pid != before {
		h.Errorf("edgeway is %s with process %s, before %s; want it to be activating", state, pid, before)
	}
	h.Logf("STATUS: %s", h.show("edgeway", "StatusText"))
	h.contains(h.show("edgeway", "StatusText"), "nftables: ")
	if state, _ := h.try("systemctl", "is-active", "edgeway-ready.target"); state == "active" {
		h.Error("edgeway-ready.target is active")
	}
}
