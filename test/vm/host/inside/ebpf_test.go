package inside

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
)

// pinDir is the directory in which edgeway-bpf.service pins its BPF objects.
const pinDir = "/run/edgeway_bpf/v2"

const (
	tcFile   = "/etc/edgeway/conf.d/tc.toml"
	tcFolder = "/etc/systemd/system/edgeway-bpf.service.d"
)

// testEbpf tests the ebpf backend, which needs a drop-in. The drop-in adds a unit that loads the BPF programs before
// the daemon starts.
func testEbpf(h *host) {
	h.run("mkdir", "-p", fencesDir)
	h.run("ln", "-s", "/usr/share/edgeway/ebpf.conf", fencesDir)
	h.Cleanup(func() {
		h.remove(fencesDir)
		h.try("systemctl", "daemon-reload")
		h.try("systemctl", "restart", "edgeway")
		h.try("systemctl", "stop", "run-edgeway_bpf.mount")
		h.remove(filepath.Dir(pinDir))
	})
	h.run("systemctl", "daemon-reload")
	h.switchBackend("ebpf", func() { h.run("systemctl", "restart", "edgeway") })
	h.verifyCapabilities(h.show("edgeway", "MainPID"), netAdmin)
	h.verifyExposure(1.7) // the bpf system call adds 0.2 to the score
	h.verifyRedirection()
	h.verifyUnnoticed(func() { h.run("systemctl", "restart", "edgeway") })
	h.verifyRedirection()
	h.toggleTCProgram()
	h.verifyRepair("ebpf", func() { h.run("nft", "flush", "ruleset") })
	h.switchBackend("nftables", func() { h.run("systemctl", "reload", "edgeway") })
	h.run("systemctl", "start", "edgeway-bpf") // the switch unloaded the programs, and a reload does not start units
	h.switchBackend("ebpf", func() { h.run("systemctl", "reload", "edgeway") })
	h.verifyRedirection()
	h.cleansUp()
	if left, _ := filepath.Glob(pinDir + "/*"); len(left) > 0 {
		h.Errorf("after edgeway cleanup there are %q", left)
	}
}

// toggleTCProgram turns the tc program on and off. While the loader lacks the necessary capability, `edgeway status`
// must name the drop-in that adds this capability.
func (h *host) toggleTCProgram() {
	h.Helper()
	h.Cleanup(func() {
		h.remove(tcFile)
		h.remove(tcFolder)
	})
	h.write(tcFile, "[ebpf]\ntc = true\n")
	h.run("systemctl", "restart", "edgeway")
	h.eventually("ebpf-tc.conf", "edgeway", "status")
	h.verifyFromHost(clusterIP, clusterIP6)
	h.run("mkdir", "-p", tcFolder)
	h.run("ln", "-s", "/usr/share/edgeway/ebpf-tc.conf", tcFolder)
	h.run("systemctl", "daemon-reload")
	h.run("systemctl", "restart", "edgeway")
	h.verifyRedirection()
	h.verifyFromOutside(nodePort)
	h.verifyCapabilities(h.show("edgeway", "MainPID"), netAdmin)
	if _, err := os.Stat(pinDir + "/pod_ranges"); err != nil {
		h.Error(err)
	}
	h.remove(tcFile)
	h.verifyUnnoticed(func() { h.run("systemctl", "reload", "edgeway") })
	h.waitFor(eventTimeout, func() error {
		if _, err := os.Stat(pinDir + "/pod_ranges"); err == nil {
			return errors.New("the maps of the tc program are still pinned")
		}
		return nil
	})
	h.verifyRedirection()
}

// verifyRedirection fails the test unless the BPF programs redirect connections from this host.
func (h *host) verifyRedirection() {
	h.Helper()
	if _, err := os.Stat(pinDir); err != nil {
		h.Error(err)
	}
	h.verifyFromHost(clusterIP, clusterIP6)
	h.contains(h.run("edgeway", "explain", "host", "default/web"), "by socket")
	status := h.run("edgeway", "status", "--verbose")
	h.contains(status, "of the connections to Services")
	if strings.Contains(status, "not in use") {
		h.Errorf("the BPF programs are not in use:\n%s", status)
	}
}
