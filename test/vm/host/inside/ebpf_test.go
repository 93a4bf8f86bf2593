package inside

import (
	"os"
	"path/filepath"
	"strings"
)

// pins is where the unit edgeway-bpf pins.
const pins = "/run/edgeway_bpf/v2"

// ebpf needs the drop-in, by which a unit of its own loads the programs before the daemon starts.
func ebpf(h *host) {
	h.run("mkdir", "-p", fencesDir)
	h.run("ln", "-s", "/usr/share/edgeway/ebpf.conf", fencesDir)
	h.Cleanup(func() {
		h.remove(fencesDir)
		h.try("systemctl", "daemon-reload")
		h.try("systemctl", "restart", "edgeway")
		h.try("systemctl", "stop", "run-edgeway_bpf.mount")
		h.remove(filepath.Dir(pins))
	})
	h.run("systemctl", "daemon-reload")
	h.switches("ebpf", func() { h.run("systemctl", "restart", "edgeway") })
	h.privileged(h.show("edgeway", "MainPID"), netAdmin)
	h.exposed(1.7) // systemd counts the system call bpf as 0.2
	h.taken()
	h.unnoticed(func() { h.run("systemctl", "restart", "edgeway") })
	h.taken()
	h.repaired("ebpf", func() { h.run("nft", "flush", "ruleset") })
	h.switches("nftables", func() { h.run("systemctl", "reload", "edgeway") })
	h.run("systemctl", "start", "edgeway-bpf") // the switch has unloaded the programs, and a reload starts no unit
	h.switches("ebpf", func() { h.run("systemctl", "reload", "edgeway") })
	h.taken()
	h.cleansUp()
	if left, _ := filepath.Glob(pins + "/*"); len(left) > 0 {
		h.Errorf("after edgeway cleanup there are %q", left)
	}
}

// taken wants connections of this host to take the shortcut.
func (h *host) taken() {
	h.Helper()
	if _, err := os.Stat(pins); err != nil {
		h.Error(err)
	}
	h.answers(clusterIP, clusterIP6)
	h.contains(h.run("edgeway", "explain", "host", "default/web"), "by socket")
	status := h.run("edgeway", "status")
	h.contains(status, "of the connections to Services")
	if strings.Contains(status, "not at work") {
		h.Errorf("the program for packets is not at work:\n%s", status)
	}
}
