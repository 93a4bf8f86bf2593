package inside

import (
	"net"
)

// If a client connects before the daemon is running, the client must wait for the daemon. systemd opens the listening
// socket early in the boot.
func socketBeforeDaemon(h *host) {
	h.run("systemctl", "stop", "edgeway")
	h.run("systemctl", "enable", "--now", "edgeway-nodeport@30080.socket")
	answered := make(chan error, 2)
	for _, addr := range []string{loopback, loopback6} {
		go func() {
			_, err := requestName(addr)
			answered <- err
		}()
	}
	h.run("systemctl", "start", "edgeway")
	for range 2 {
		if err := <-answered; err != nil {
			h.Errorf("client that came before the daemon: %v", err)
		}
	}
	h.run("systemctl", "is-active", "edgeway-nodeport@30080.socket", "edgeway-nodeport-ipv6@30080.socket")
	h.run("systemctl", "restart", "edgeway")
	h.verifyFromHost(loopback, loopback6)
}

func socketStartsDaemon(h *host) {
	h.run("systemctl", "stop", "edgeway")
	h.verifyFromHost(loopback)
	h.becomes("edgeway", "active")
}

func socketOfNoNodePort(h *host) {
	h.run("systemctl", "stop", "edgeway")
	h.run("systemctl", "start", "edgeway-nodeport@30999.socket")
	h.run("systemctl", "start", "edgeway")
	h.Cleanup(func() {
		h.try("systemctl", "stop", "edgeway", "edgeway-nodeport@30999.socket", "edgeway-nodeport-ipv6@30999.socket")
		h.try("systemctl", "start", "edgeway")
	})
	h.eventually("is not a NodePort", "journalctl", "-u", "edgeway", "-o", "cat", "-n", "30")
	h.verifyFromHost(clusterIP, loopback)
}

// testPortInUse tests a NodePort on loopback when another program already uses the port. The daemon must serve the
// NodePort once the other program closes its socket.
func testPortInUse(h *host) {
	const addr = "127.0.0.1:30085"
	other, err := net.Listen("tcp", addr)
	if err != nil {
		h.Fatal(err)
	}
	defer other.Close()
	h.run("systemctl", "stop", "edgeway") // systemd does not start a socket unit while its service is running
	if out, code := h.try("systemctl", "start", "edgeway-nodeport@30085.socket"); code == 0 {
		h.Errorf("socket unit started: %s", out)
	}
	h.contains(h.run("journalctl", "-u", "edgeway-nodeport@30085.socket", "-o", "cat"), "127.0.0.1:30085")
	h.try("systemctl", "stop", "edgeway-nodeport@30085.socket", "edgeway-nodeport-ipv6@30085.socket")
	h.try("systemctl", "reset-failed", "edgeway-nodeport@30085.socket")
	h.run("systemctl", "start", "edgeway")

	h.write("/etc/edgeway/manifests/taken.yaml", Manifest("taken", "10.96.0.30", "fd00:96::30", 30085))
	h.Cleanup(func() { h.remove("/etc/edgeway/manifests/taken.yaml") })
	h.eventually("cannot listen on a loopback NodePort", "journalctl", "-u", "edgeway", "-o", "cat", "-n", "30")
	h.verifyFromHost("10.96.0.30:80", "[::1]:30085", loopback)
	h.run("systemctl", "restart", "edgeway") // the other program gets the port before the daemon starts
	h.verifyFromHost("10.96.0.30:80", loopback)
	other.Close()
	took := h.waitFor(2*eventTimeout, func() error {
		_, err := requestName(addr)
		return err
	})
	h.Logf("served %.1f s after the port became free", took.Seconds())
}
