package inside

import (
	"fmt"
	"strings"
	"time"

	"edgeway/test/netlab"
)

// besideKeepalived tests that a client on the host's network reaches a Service at the address that keepalived assigns,
// and that the host gives up the address while the Edgeway daemon is stopped.
func besideKeepalived(h *host) {
	const addr = "192.0.2.100"
	h.manifest("shared", oneEndpoint("shared", "10.96.0.90", addr, "10.244.1.11"))
	h.becomesServed("10.96.0.90:80")
	if o := h.connectFromOutside(addr+":80", 3*time.Second); o.Result == netlab.Served {
		h.Fatalf("%s without the recipe: %s", addr, o)
	}
	h.Cleanup(func() { h.try("systemctl", "stop", "keepalived") })
	owned := func(want bool) {
		h.Helper()
		h.waitFor(eventTimeout, func() error {
			if out := h.run(
				"ip", "-4", "-brief", "address", "show", "dev", "eth0",
			); strings.Contains(out, addr+"/32") != want {
				return fmt.Errorf("the host owns %s: want %v:\n%s", addr, want, out)
			}
			return nil
		})
	}
	reached := func() {
		h.Helper()
		h.waitFor(eventTimeout, func() error {
			if o := h.connectFromOutside(addr+":80", askPatience); o.Result != netlab.Served || o.Server != "ep1" {
				return fmt.Errorf("%s from outside: %s", addr, o)
			}
			return nil
		})
	}

	h.followRecipe("hosts.md", "keepalived")
	owned(true)
	reached()
	h.eventually(": healthy\n", "edgeway", "status")
	h.run("systemctl", "stop", "edgeway")
	owned(false)
	h.run("systemctl", "start", "edgeway")
	owned(true)
	reached()
}
