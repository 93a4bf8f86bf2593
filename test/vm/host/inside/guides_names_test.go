package inside

import (
	"fmt"
	"strings"
)

// namesInHostsFile tests that names resolve while no name server responds and the daemon is stopped.
func namesInHostsFile(h *host) {
	const file, name, own = "/etc/hosts", "web.default.svc.cluster.local", "127.0.0.1 localhost\n192.0.2.50 printer\n"
	h.write(file, strings.TrimSuffix(own, "\n")) // the last line of a file that an operator edits may have no end
	if out, code := h.try("getent", "ahosts", name); code == 0 {
		h.Fatalf("the name is known without the recipe: %s", out)
	}
	h.Cleanup(func() { h.write(file, own) })
	h.stopAtEnd("cluster-names.timer")

	h.followRecipe("hosts.md", "/etc/hosts")
	h.eventually("10.96.0.20", "getent", "ahostsv4", name) // the timer runs the script
	h.contains(h.run("getent", "ahostsv6", name), "fd00:96::20")
	h.contains(h.run("getent", "hosts", "printer"), "192.0.2.50")
	h.eventually(" 10.96.0.20", "resolvectl", "query", "--legend=no", name)
	h.run("systemctl", "stop", "cluster-names.timer")
	first := h.text(file)
	if !strings.HasPrefix(first, own) {
		h.Errorf("the operator's own lines differ:\n%s", first)
	}
	h.starts("cluster-names", true)
	if again := h.text(file); again != first {
		h.Errorf("the second run changes the file:\n%s\nto\n%s", first, again)
	}

	h.manifest("more", oneEndpoint("more", "10.96.0.40", "", "10.244.1.11"))
	h.becomesServed("10.96.0.40:80")
	h.starts("cluster-names", true)
	h.contains(h.run("getent", "ahostsv4", "more.default.svc"), "10.96.0.40")
	h.remove("/etc/edgeway/manifests/more.yaml")
	h.waitFor(eventTimeout, func() error {
		h.starts("cluster-names", true)
		if out, code := h.try("getent", "ahostsv4", "more.default.svc"); code == 0 {
			return fmt.Errorf("the name of the removed Service stays: %s", out)
		}
		return nil
	})

	h.run("systemctl", "stop", "edgeway")
	h.Cleanup(func() { h.run("systemctl", "start", "edgeway") })
	h.starts("cluster-names", false)
	if after := h.text(file); after != first {
		h.Errorf("a run without the daemon changes the file:\n%s\nto\n%s", first, after)
	}
	h.contains(h.run("getent", "ahostsv4", name), "10.96.0.20")
	h.verifyFromHost(webIP)
}
