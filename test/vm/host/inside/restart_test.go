package inside

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// verifyUnnoticed calls disturb, which stops or restarts the daemon, and verifies that clients do not notice the
// interruption:
//   - All new connections to a ClusterIP succeed, because the kernel handles them without the daemon.
//   - No new connection to a NodePort on loopback is refused, because systemd keeps the listener open.
//   - An established connection to a ClusterIP survives.
func (h *host) verifyUnnoticed(disturb func()) {
	h.Helper()
	held := h.hold(clusterIP, clusterIP6)
	cluster := h.startTraffic(clusterIP, 20*time.Millisecond)
	loop4, loop6 := h.startTraffic(loopback, 20*time.Millisecond), h.startTraffic(loopback6, 20*time.Millisecond)
	h.flows(cluster, loop4, loop6)
	disturb()
	h.verifyFromHost(loopback, loopback6)
	h.endWithoutFailures(cluster)
	for _, c := range []*trafficClient{loop4, loop6} {
		h.end(c)
		// A relayed connection breaks when the daemon exits.
		if c.refused+c.failed > 0 {
			h.Errorf("%s: %d connections refused, %d failed, want none", c.addr, c.refused, c.failed)
		}
	}
	held.stillServed(h)
	h.becomes("edgeway-ready.target", "active")
}

type held []net.Conn

func (h *host) hold(addrs ...string) (open held) {
	h.Helper()
	for _, addr := range addrs {
		conn, err := dial(addr, askPatience)
		if err != nil {
			h.Fatal(err)
		}
		h.Cleanup(func() { conn.Close() })
		open = append(open, conn)
	}
	open.stillServed(h)
	return open
}

func (open held) stillServed(h *host) {
	h.Helper()
	for _, conn := range open {
		if _, err := requestNameOn(conn, askPatience); err != nil {
			h.Errorf("connection to %s that was open: %v", conn.RemoteAddr(), err)
		}
	}
}

func restarts(h *host) {
	const times = 5
	h.verifyUnnoticed(func() {
		start := time.Now()
		for range times {
			h.run("systemctl", "restart", "edgeway")
		}
		h.Logf("%d restarts, %.1f s each", times, time.Since(start).Seconds()/times)
	})
}

func killed(h *host) {
	before := h.show("edgeway", "MainPID")
	h.verifyUnnoticed(func() {
		h.run("systemctl", "kill", "-s", "KILL", "edgeway")
		h.waitForRestart(before)
	})
}

// waitForRestart waits until a new daemon process is ready. The parameter before is the old PID.
func (h *host) waitForRestart(before string) {
	h.Helper()
	took := h.waitFor(2*eventTimeout, func() error {
		pid, state := h.show("edgeway", "MainPID"), h.show("edgeway", "ActiveState")
		if pid == before || state != "active" {
			return fmt.Errorf("edgeway is %s with process %s, before %s", state, pid, before)
		}
		return nil
	})
	h.Logf("active again after %.1f s", took.Seconds())
}

func upgrade(h *host) {
	before := h.show("edgeway", "MainPID")
	h.verifyUnnoticed(func() {
		h.install("1.1.0")
		h.waitForRestart(before)
	})
	h.contains(h.run("edgeway", "status"), "edgeway 1.1.0: healthy")
}

// testWatchdog suspends the daemon's process and fails the test unless systemd starts a new process.
func testWatchdog(h *host) {
	const dropIns = "/etc/systemd/system/edgeway.service.d"
	h.write(dropIns+"/watchdog.conf", "[Service]\nWatchdogSec=20s\nTimeoutAbortSec=10s\n")
	h.run("systemctl", "daemon-reload")
	h.run("systemctl", "restart", "edgeway")
	h.Cleanup(func() {
		h.remove(dropIns)
		h.try("systemctl", "daemon-reload")
	})
	before := h.show("edgeway", "MainPID")
	h.verifyUnnoticed(func() {
		h.run("systemctl", "kill", "-s", "STOP", "edgeway")
		h.waitForRestart(before)
	})
	h.contains(h.run("journalctl", "-u", "edgeway", "-o", "cat"), "Watchdog timeout")
}

// restartFirewall restarts nftables.service. On most hosts, restarting nftables.service flushes all rules twice.
func restartFirewall(h *host) {
	h.contains(h.run("cat", "/etc/nftables.conf"), "flush ruleset")
	h.Cleanup(func() { h.try("nft", "delete", "table", "inet", "filter") })
	outage, restart := h.flushRules()
	limit := max(time.Second, 2*restart)
	if outage > limit {
		// The emulated machine may have waited for a CPU, so the test makes a second attempt. The test first waits for
		// a minute, because the daemon slows down its repairs while another program keeps changing the rules.
		time.Sleep(61 * time.Second)
		outage, restart = h.flushRules()
		limit = max(time.Second, 2*restart)
	}
	if outage > limit {
		h.Errorf("no Services for %d ms, want at most %d ms", outage.Milliseconds(), limit.Milliseconds())
	}
	h.verifyFromHost(clusterIP, clusterIP6, loopback)
	h.verifyFromOutside(nodePort)
}

// flushRules restarts nftables.service, which flushes all rules. outage is the longest time for which a client got no
// response from a Service. restart is the duration of "systemctl restart nftables", as a measure of the machine's
// speed.
func (h *host) flushRules() (outage, restart time.Duration) {
	h.Helper()
	repairs := h.repairs()
	// TCP retransmits a dropped packet only after a second, so the client opens another connection instead.
	c := h.startImpatientTraffic(clusterIP, 5*time.Millisecond, 200*time.Millisecond)
	start := time.Now()
	h.run("systemctl", "restart", "nftables")
	restart = time.Since(start)
	h.Logf("systemctl restart nftables took %d ms", restart.Milliseconds())
	h.waitFor(eventTimeout, func() error {
		if h.repairs() == repairs {
			return errors.New("no repair is noted")
		}
		_, err := requestName(clusterIP)
		return err
	})
	h.end(c)
	// A connection may have waited for the daemon's repair instead of failing. The number of repairs in the status
	// proves that the rules were missing for a time.
	outage = max(c.outage, c.longest)
	h.Logf("no answer for %d ms", outage.Milliseconds())
	return outage, restart
}

// repairs returns the number of repairs in the output of `edgeway status`, or "" if the daemon has repaired nothing.
func (h *host) repairs() string {
	for line := range strings.Lines(h.run("edgeway", "status")) {
		if strings.HasPrefix(line, "drift") {
			return strings.Fields(line)[1]
		}
	}
	return ""
}
