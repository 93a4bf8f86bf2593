package inside

import (
	"strings"
	"testing"
)

func TestIPTablesAlone(t *testing.T) {
	play(t, []scenario{
		{name: "apt can do without nftables", run: testWithoutNFTables, vital: true},
		{name: "iptables serves instead of the default backend", run: testFallback},
		{name: "without a fallback the default backend says what is missing", run: testMissingProgram},
		{name: "backend iptables", run: verifyIPTablesServices},
	})
}

// testWithoutNFTables tests that apt installs nftables as a recommended package, unless --no-install-recommends is set.
func testWithoutNFTables(h *host) {
	offerPackage(h, "nftables")
	h.run("dpkg", "--purge", "nftables")
	if out, code := h.try("sh", "-c", "command -v nft"); code == 0 {
		h.Fatalf("%s is still there", out)
	}
	deb := packageFile("1.0.0")
	if plan := h.run("apt-get", "install", "-s", "-q", deb); !strings.Contains(plan, "Inst nftables ") {
		h.Errorf("apt would not install nftables in any case, so that what follows says nothing:\n%s", plan)
	}
	for line := range strings.Lines(h.run("apt-get", "install", "-s", "-q", "--no-install-recommends", deb)) {
		if strings.HasPrefix(line, "Inst ") && !strings.HasPrefix(line, "Inst edgeway ") {
			h.Errorf("apt would install more: %s", line)
		}
	}
	h.run("apt-get", "install", "-q", "-y", "--no-install-recommends", deb)
	if out, code := h.try("dpkg-query", "-W", "-f", "${Status}", "nftables"); code == 0 &&
		!strings.Contains(out, "not-installed") {
		h.Errorf("nftables is %s", out)
	}
	h.run("apt-get", "check")
}

// offerPackage adds an apt repository that offers an installed package. The repository contains only the package's
// metadata, which is enough for a simulated installation.
func offerPackage(h *host, name string) {
	const archive, list = "/var/tmp/archive", "/etc/apt/sources.list.d/archive.list"
	description := ""
	for line := range strings.Lines(h.run("dpkg-query", "-s", name)) {
		if !strings.HasPrefix(line, "Status: ") {
			description += line
		}
	}
	h.write(archive+"/Packages", description+"\nFilename: package.deb\nSize: 1\n")
	h.write(list, "deb [trusted=yes] file:"+archive+" ./\n")
	h.run("apt-get", "update", "-q", "-o", "Dir::Etc::SourceList="+list, "-o", "Dir::Etc::SourceParts=-")
}

const missing = "install the nftables package"

func testFallback(h *host) {
	h.write(siteFile, siteConfig)
	h.write("/etc/edgeway/manifests/web.yaml", Manifest("web", "10.96.0.10", "fd00:96::10", 30080))
	h.run("systemctl", "start", "edgeway")
	h.verifyFromHost(clusterIP, clusterIP6)
	h.eventually("the backend iptables-nft, because this host", "edgeway", "status")
	h.contains(h.run("edgeway", "status"), missing)
	h.run("systemctl", "stop", "edgeway")
}

func testMissingProgram(h *host) {
	h.write(backendFile, "[proxy]\nfallback = \"none\"\n")
	for command, want := range map[string]int{"probe": 1, "doctor": 4, "run": 1} {
		out, code := h.try("edgeway", command)
		if h.contains(out, missing); code != want {
			h.Errorf("edgeway %s: exit code %d, want %d", command, code, want)
		}
	}
	if out, code := h.try("systemctl", "start", "edgeway"); code == 0 {
		h.Errorf("start succeeded: %s", out)
	}
	h.eventually(missing, "journalctl", "-u", "edgeway", "-o", "cat")
	h.contains(h.run("journalctl", "-u", "edgeway", "-o", "cat"), "or set proxy.backend")
	// systemd retries the start, because an operator may install nftables later.
	h.becomes("edgeway", "activating")
}

func verifyIPTablesServices(h *host) {
	h.write(backendFile, "[proxy]\nbackend = \"iptables\"\n")
	h.run("systemctl", "restart", "edgeway")
	h.verifyFromHost(clusterIP, clusterIP6, loopback, loopback6)
	h.verifyFromOutside(nodePort)
	h.eventually(": healthy\n", "edgeway", "status")
	h.contains(h.run("edgeway", "status"), "backend    iptables-nft: in sync")
	if out, code := h.try("edgeway", "doctor"); code != 0 {
		h.Errorf("edgeway doctor: exit code %d:\n%s", code, out)
	}
	h.run("iptables", "-t", "nat", "-F")
	h.waitFor(eventTimeout, func() error {
		_, err := requestName(clusterIP)
		return err
	})
	h.run("systemctl", "restart", "edgeway")
	h.verifyFromHost(clusterIP, clusterIP6, loopback)
	if out := h.run("journalctl", "-p", "warning", "-q", "-o", "cat", "_PID="+h.show("edgeway", "MainPID")); out != "" {
		h.Errorf("warnings: %s", out)
	}
}
