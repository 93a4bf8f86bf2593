package inside

import (
	"fmt"
	"strings"
)

// testJournal tests that a fault's journal entry has searchable fields, and a message ID that the journal's catalog
// explains.
func testJournal(h *host) {
	const file = "/etc/edgeway/manifests/faulty.yaml"
	h.write(file, strings.Replace(Manifest("faulty", "10.96.0.40", "fd00:96::40", 30086),
		"  ports:", "  externalIPs: [127.0.0.1]\n  ports:", 1))
	h.Cleanup(func() { h.remove(file) })
	h.waitFor(eventTimeout, func() error {
		out, _ := h.try("journalctl", "-u", "edgeway", "-o", "cat", "SERVICE=default/faulty")
		if !strings.Contains(out, "127.0.0.1") {
			return fmt.Errorf("nothing with SERVICE=default/faulty: %s", out)
		}
		return nil
	})
	h.contains(h.run("journalctl", "-x", "--no-pager", "MESSAGE_ID=5db7360b7fbe152e57cb132b9db453d6"),
		"Defined-By: Edgeway")
	h.contains(h.run("journalctl", "-o", "cat", "STAGE=nftables"), "drifted")
	h.contains(h.run("journalctl", "-p", "warning", "-u", "edgeway", "-o", "cat"), "faulty")
}
