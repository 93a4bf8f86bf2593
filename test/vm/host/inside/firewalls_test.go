package inside

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"edgeway/proxiers/plan"
	"edgeway/test/netlab"
)

// nodePorts holds the addresses at which a client on the host's own network reaches the NodePort of the Service web.
var nodePorts = []string{nodePort, "[2001:db8:2::10]:30080"}

const (
	noRules = "iptables -P INPUT ACCEPT; iptables -P FORWARD ACCEPT; iptables -F; iptables -X; " +
		"ip6tables -P INPUT ACCEPT; ip6tables -P FORWARD ACCEPT; ip6tables -F; ip6tables -X"
	// triggerCheck is a shell command that changes a kernel route. The change triggers the daemon's host checks, which
	// otherwise run up to a minute later.
	triggerCheck = "ip route replace 198.18.0.0/24 via 192.0.2.1 && ip route del 198.18.0.0/24"
)

type found struct{ ID, Severity, Message, Fix string }

// verifyDropped fails the test unless connections from outside fail, and both the doctor and the status name the owner
// of the rules that drop packets. verifyDropped returns the doctor's fixes.
func (h *host) verifyDropped(whose string) (fix []string) {
	h.Helper()
	for _, addr := range nodePorts {
		if o := h.connectFromOutside(addr, 3*time.Second); o.Result == netlab.Served {
			h.Errorf("%s from outside: %s, though %s should drop it", addr, o, whose)
		}
	}
	out, code := h.try("edgeway", "doctor", "--json")
	var report struct{ Faults []found }
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 4 {
		h.Fatalf("edgeway doctor: exit code %d, %v:\n%s", code, err, out)
	}
	for _, f := range report.Faults {
		if f.ID == "firewall" && f.Severity == "problem" {
			h.contains(f.Message, whose)
			h.Logf("doctor: %s\nfix: %s", f.Message, f.Fix)
			if !slices.Contains(fix, f.Fix) {
				fix = append(fix, f.Fix)
			}
		}
	}
	if fix == nil {
		h.Errorf("edgeway doctor finds no firewall:\n%s", out)
	}
	h.waitFor(eventTimeout, func() error {
		h.run("sh", "-c", triggerCheck)
		out, code := h.try("edgeway", "status")
		if code != 4 || !strings.Contains(out, ": DEGRADED") || !strings.Contains(out, "problem   firewall") ||
			!strings.Contains(out, whose) {
			return fmt.Errorf("exit code %d, want 4, for %s:\n%s", code, whose, out)
		}
		return nil
	})
	return fix
}

// verifyWorking fails the test unless all connections succeed and the doctor finds no firewall rule that drops
// connections.
func (h *host) verifyWorking() {
	h.Helper()
	h.verifyServed()
	if out, code := h.try("edgeway", "doctor"); code != 0 ||
		!strings.Contains(out, "no rule of another program drops connections to Services") {
		h.Errorf("edgeway doctor: exit code %d:\n%s", code, out)
	}
}

// verifyServed fails the test unless all connections succeed and the status is healthy. verifyServed does not
// run the doctor, which may still warn about forwarded connections to a ClusterIP, because clients seldom have a route
// to a ClusterIP.
func (h *host) verifyServed() {
	h.Helper()
	for _, addr := range nodePorts {
		if o := h.connectFromOutside(addr, askPatience); o.Result != netlab.Served {
			h.Errorf("%s from outside: %s", addr, o)
		}
	}
	h.verifyFromHost(webIP, webIP6)
	h.waitFor(eventTimeout, func() error {
		h.run("sh", "-c", triggerCheck)
		if out, code := h.try("edgeway", "status"); code != 0 || !strings.Contains(out, ": healthy\n") {
			return fmt.Errorf("edgeway status: exit code %d:\n%s", code, out)
		}
		return nil
	})
}

// connectFromOutside connects to addr from the gateway of the host's network.
func (h *host) connectFromOutside(addr string, wait time.Duration) netlab.Outcome {
	to := netip.MustParseAddrPort(addr)
	return h.gateway.Connect(netlab.Flow{Protocol: plan.TCP, From: h.gateway.Addr(to.Addr()), To: to, Wait: wait})
}

// testIPTables tests the iptables backend, which works without a firewall recipe, because its rules precede the rules
// of other programs.
func (h *host) testIPTables() {
	h.Helper()
	h.write(backendFile, "[proxy]\nbackend = \"iptables\"\n")
	h.run("systemctl", "reload", "edgeway")
	h.onlyRulesOf("iptables-nft")
	h.verifyServed()
	h.remove(backendFile)
	h.run("systemctl", "reload", "edgeway")
	h.onlyRulesOf("nftables")
}

// registerCleanup registers a cleanup that restores the backend and removes all other programs' rules.
func (h *host) registerCleanup() {
	h.Cleanup(func() {
		h.remove(backendFile)
		h.try("systemctl", "reload", "edgeway")
		h.try("sh", "-c", noRules)
	})
}

func testUFW(h *host) {
	h.registerCleanup()
	h.Cleanup(func() { h.try("ufw", "disable") })
	h.run("ufw", "--force", "enable")
	h.contains(h.run("ufw", "status", "verbose"), "deny (routed)")
	h.verifyDropped("ufw's policy drop of chain FORWARD")
	h.testIPTables()
	h.followRecipe("firewalls.md", "ufw")
	h.verifyWorking()
	h.run("ufw", "reload")
	h.verifyWorking()
}

const dockerUnit = `[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -ec 'for i in iptables ip6tables; do \
	for c in DOCKER-USER DOCKER-FORWARD DOCKER-CT DOCKER-BRIDGE DOCKER; do $i -N $c || $i -L $c; done; \
	$i -P FORWARD DROP; \
	for c in DOCKER-FORWARD DOCKER-USER; do $i -D FORWARD -j $c || :; $i -I FORWARD -j $c; done; \
	$i -F DOCKER-FORWARD; \
	$i -A DOCKER-FORWARD -j DOCKER-CT; \
	$i -A DOCKER-FORWARD -j DOCKER-BRIDGE; \
	$i -A DOCKER-FORWARD -i docker0 -j ACCEPT; \
	$i -F DOCKER-CT; \
	$i -A DOCKER-CT -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT; \
	$i -F DOCKER-BRIDGE; \
	$i -A DOCKER-BRIDGE -o docker0 -j DOCKER; \
	$i -F DOCKER; \
	$i -A DOCKER ! -i docker0 -o docker0 -j DROP; \
done'
`

func testDocker(h *host) {
	const user = "-S DOCKER-USER"
	h.registerCleanup()
	h.Cleanup(func() {
		h.try("systemctl", "stop", "docker")
		h.remove("/etc/systemd/system/docker.service")
		h.remove("/etc/systemd/system/docker.service.d")
		h.try("systemctl", "daemon-reload")
	})
	h.write("/etc/systemd/system/docker.service", dockerUnit)
	h.run("systemctl", "daemon-reload")
	h.run("systemctl", "start", "docker")
	for _, command := range h.verifyDropped("Docker's policy drop of chain FORWARD") {
		h.run("sh", "-c", command)
	}
	h.verifyWorking()
	h.run("sh", "-c", noRules) // a boot also clears the rules
	h.run("systemctl", "restart", "docker")
	h.verifyDropped("Docker's policy drop of chain FORWARD")
	h.testIPTables()

	h.followRecipe("firewalls.md", "Docker")
	h.verifyWorking()
	h.run("systemctl", "restart", "docker")
	h.verifyWorking()
	if out := h.run("sh", "-c", "iptables "+user+"; ip6tables "+user); strings.Count(out, "-j ACCEPT") != 2 {
		h.Errorf("one rule for each family, not more after a restart:\n%s", out)
	}
	h.run("sh", "-c", noRules)
	h.run("systemctl", "restart", "docker")
	h.verifyWorking()
}

// testFirewalld tests a host with firewalld. firewalld accepts translated connections unless the administrator enables
// StrictForwardPorts, which firewalld 2.3.0 introduced.
func testFirewalld(h *host) {
	h.run("systemctl", "unmask", "firewalld")
	h.Cleanup(func() { h.try("systemctl", "stop", "firewalld") })
	h.run("systemctl", "start", "firewalld")
	h.contains(h.run("firewall-cmd", "--get-default-zone"), "public")
	h.contains(h.run("nft", "list", "chain", "inet", "firewalld", "filter_FORWARD"), "reject")
	h.verifyWorking()
	h.run("firewall-cmd", "--reload")
	h.verifyWorking()

	const config = "/etc/firewalld/firewalld.conf"
	if out := h.run("cat", config); !strings.Contains(out, "StrictForwardPorts=no") {
		h.Logf("firewalld %s cannot be stricter", h.run("firewall-cmd", "--version"))
		return
	}
	h.run("sed", "-i", "s/^StrictForwardPorts=no/StrictForwardPorts=yes/", config)
	h.run("firewall-cmd", "--reload")
	fix := h.verifyDropped("firewalld's rule ")
	if _, err := requestName(webIP); err == nil || len(fix) != 1 {
		h.Errorf("the host's own connections: %v; want an error, and one command for all that is dropped: %q", err, fix)
	}
	h.run("sh", "-c", fix[0])
	h.verifyWorking()
	h.run("sed", "-i", "s/^StrictForwardPorts=no/StrictForwardPorts=yes/", config)
	h.run("firewall-cmd", "--reload")
	h.followRecipe("firewalls.md", "firewalld")
	h.verifyWorking()
	h.run("firewall-cmd", "--reload")
	h.verifyWorking()
	h.run("systemctl", "restart", "firewalld")
	h.verifyWorking()
}
