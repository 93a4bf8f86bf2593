package inside

import (
	"os"
	"os/user"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// packageFile returns the path of the package with the given version.
func packageFile(version string) string {
	arch := runtime.GOARCH
	if arch == "arm" {
		arch = "armhf"
	}
	return jobDir + "/edgeway_" + version + "-1_" + arch + ".deb"
}

func (h *host) install(version string) {
	h.Helper()
	h.run("apt-get", "install", "-q", "-y", "--no-install-recommends", packageFile(version))
}

func installStartsNothing(h *host) {
	h.install("1.0.0")
	if out, _ := h.try("systemctl", "is-enabled", "edgeway"); out != "disabled" {
		h.Errorf("is-enabled says %q, want disabled", out)
	}
	if out, _ := h.try("systemctl", "is-active", "edgeway"); out != "inactive" {
		h.Errorf("is-active says %q, want inactive", out)
	}
	if out := h.run("systemctl", "--failed", "--no-legend", "--plain"); out != "" {
		h.Errorf("failed units: %s", out)
	}
	if tables := h.run("nft", "list", "tables"); strings.Contains(tables, "edgeway") {
		h.Errorf("there are rules: %s", tables)
	}
	if _, err := user.Lookup("edgeway"); err != nil {
		h.Error(err)
	}
}

func startWithoutSources(h *host) {
	if out, code := h.try("systemctl", "start", "edgeway"); code == 0 {
		h.Errorf("start succeeded: %s", out)
	}
	h.contains(h.run("journalctl", "-u", "edgeway", "-o", "cat"), "source")
	if out, _ := h.try("systemctl", "is-active", "edgeway"); out != "failed" {
		h.Errorf("is-active says %q, want failed: it must not be tried again and again", out)
	}
	h.run("systemctl", "reset-failed", "edgeway")
}

// testRootKubeconfig tests a kubeconfig that only root can read. If root runs `edgeway config check`, the command must
// report that the service's user cannot read the file, and must print a fix. The service must fail, and systemd must
// not restart it, because a restart would not help.
func testRootKubeconfig(h *host) {
	const kubeconfig = "/etc/edgeway/kubeconfig"
	h.write(siteFile, "[source.kube]\nkubeconfig = \""+kubeconfig+"\"\n")
	h.write(kubeconfig, `{current-context: c, contexts: [{name: c, context: {cluster: k, user: u}}],
clusters: [{name: k, cluster: {server: "https://192.0.2.1:6443"}}], users: [{name: u, user: {token: a}}]}`)
	h.run("chmod", "600", kubeconfig)
	const fix = "chgrp edgeway " + kubeconfig + " && chmod g+rX " + kubeconfig
	out, code := h.try("edgeway", "config", "check")
	h.contains(out, "open "+kubeconfig+": permission denied")
	if h.contains(out, "run: "+fix); code != 2 {
		h.Errorf("config check: exit code %d, want 2", code)
	}
	if out, code := h.try("systemctl", "start", "edgeway"); code == 0 {
		h.Errorf("start succeeded: %s", out)
	}
	if state, status := h.show("edgeway", "ActiveState"), h.show("edgeway", "ExecMainStatus"); state != "failed" ||
		status != "2" {
		h.Errorf("the service is %s after exit code %s, want failed after 2", state, status)
	}
	h.run("sh", "-c", fix)
	h.run("edgeway", "config", "check")
	h.run("systemctl", "reset-failed", "edgeway")
	h.remove(siteFile)
	h.remove(kubeconfig)
}

const siteConfig = `[source.file]
paths = ["/etc/edgeway/manifests"]

[proxy]
service_cidrs = ["10.96.0.0/12", "fd00:96::/108"]
nodeport_addresses = ["primary", "localhost"]
`

const siteFile = "/etc/edgeway/conf.d/site.toml"

func enableAndStart(h *host) {
	h.write(siteFile, siteConfig)
	h.write("/etc/edgeway/manifests/web.yaml", Manifest("web", "10.96.0.10", "fd00:96::10", 30080))
	h.run("edgeway", "config", "check")
	h.run("systemctl", "enable", "--now", "edgeway")
	h.verifyFromHost(clusterIP, clusterIP6, loopback, loopback6)
	h.verifyFromOutside(nodePort)
	if out := h.run("systemctl", "is-active", "edgeway", "edgeway-ready.target"); out != "active\nactive" {
		h.Errorf("is-active of service and target: %q", out)
	}
	h.verifyCapabilities(h.show("edgeway", "MainPID"), netAdmin)
	status := h.show("edgeway", "StatusText")
	h.Logf("STATUS: %s", status)
	h.contains(status, "nftables: 1 Service, 4 endpoints, synced")
	h.run("edgeway", "status")
}

// verifyCapabilities fails the test unless a process runs as the user edgeway with exactly the given capabilities.
func (h *host) verifyCapabilities(pid, caps string) {
	h.Helper()
	status, err := os.ReadFile("/proc/" + pid + "/status")
	if err != nil {
		h.Fatal(err)
	}
	u, err := user.Lookup("edgeway")
	if err != nil {
		h.Fatal(err)
	}
	g, err := user.LookupGroup("edgeway-status")
	if err != nil {
		h.Fatal(err)
	}
	for _, want := range [][]string{
		{"Uid:", u.Uid},
		{"Gid:", g.Gid},
		{"CapPrm:", caps},
		{"CapEff:", caps},
		{"CapBnd:", caps},
	} {
		_, rest, _ := strings.Cut(string(status), want[0])
		if fields := strings.Fields(rest); len(fields) == 0 || fields[0] != want[1] {
			h.Errorf("want %s %s in\n%s", want[0], want[1], status)
		}
	}
	_, rest, _ := strings.Cut(string(status), "Groups:")
	groups, _, _ := strings.Cut(rest, "\n")
	if !slices.Contains(strings.Fields(groups), u.Gid) {
		h.Errorf("the process is not in the group edgeway, for which secret files are:\n%s", status)
	}
}

// verifyNoWarnings fails the test if the daemon has logged a warning, if systemd reports a problem with a unit, or if
// the daemon's file descriptor store in systemd does not contain exactly two sockets.
func verifyNoWarnings(h *host) {
	if out := h.run("journalctl", "-p", "warning", "-q", "-o", "cat", "SYSLOG_IDENTIFIER=edgeway",
		"_TRANSPORT=journal"); out != "" {
		h.Errorf("warnings of a daemon that has all it needs:\n%s", out)
	}
	if out := h.run("journalctl", "-q", "-o", "cat", "_TRANSPORT=journal", "SYSLOG_IDENTIFIER=edgeway"); out == "" {
		h.Error("the daemon does not write to the journal itself")
	}
	units := []string{
		"verify", "--man=no", "edgeway.service", "edgeway-ready.target", "edgeway-nodeport@30080.socket",
		"edgeway-nodeport-ipv6@30080.socket",
	}
	if out, code := h.try("systemd-analyze", units...); code != 0 || strings.Contains(out, "edgeway") {
		h.Errorf("systemd-analyze verify: exit code %d: %s", code, out)
	}
	if n := h.show("edgeway", "NFileDescriptorStore"); n != "2" {
		h.Errorf("%s sockets in the fd store, want 2", n)
	}
}

// testGroupAccess tests that a member of the edgeway-status group can query the daemon without sudo, but cannot change
// anything.
func testGroupAccess(h *host) {
	member := []string{"--reuid", "nobody", "--regid", "edgeway-status", "--clear-groups", "edgeway"}
	h.contains(h.run("setpriv", append(member, "status")...), "healthy")
	h.contains(h.run("setpriv", append(member, "explain", "host", "default/web")...), "forward: ")
	if out, code := h.try("setpriv", append(member, "reload")...); code != 1 ||
		!strings.Contains(out, "run the command as root") {
		h.Errorf("reload by a member of the group: exit code %d, %s", code, out)
	}
	stranger := []string{"--reuid", "nobody", "--regid", "nogroup", "--clear-groups", "edgeway", "status"}
	if out, code := h.try("setpriv", stranger...); code != 1 ||
		!strings.Contains(out, "or as a member of the socket's group") {
		h.Errorf("status by a stranger: exit code %d, %s", code, out)
	}
}

// testStop tests that Services work while the daemon is stopped, because the rules remain in the kernel.
func testStop(h *host) {
	open := h.hold(clusterIP)
	h.run("systemctl", "stop", "edgeway")
	if out, _ := h.try("systemctl", "is-active", "edgeway", "edgeway-ready.target"); out != "inactive\ninactive" {
		h.Errorf("is-active of service and target: %q", out)
	}
	h.verifyFromHost(clusterIP, clusterIP6)
	h.verifyFromOutside(nodePort)
	open.stillServed(h)
	h.run("systemctl", "start", "edgeway")
}

func startReturnsWhenServicesWork(h *host) {
	for range 3 {
		h.run("systemctl", "stop", "edgeway")
		h.run("edgeway", "cleanup")
		if _, err := requestName(clusterIP); err == nil {
			h.Fatal("the ClusterIP answers although there are no rules: this test says nothing")
		}
		h.run("systemctl", "start", "edgeway")
		h.verifyFromHost(clusterIP)
	}
}

// testExposure tests the sandbox's exposure score in "systemd-analyze security". The highest acceptable score is 1.5,
// while comparable programs have scores of 9.0 to 9.6.
func testExposure(h *host) { h.verifyExposure(1.5) }

func (h *host) verifyExposure(most float64) {
	h.Helper()
	out := h.run("systemd-analyze", "security", "--no-pager", "edgeway.service")
	found := regexp.MustCompile(`Overall exposure level for edgeway.service: ([\d.]+) .*`).FindStringSubmatch(out)
	if found == nil {
		h.Fatalf("no level in:\n%s", out)
	}
	h.Log(found[0])
	if level, err := strconv.ParseFloat(found[1], 64); err != nil || level > most {
		h.Errorf("want at most %.1f in:\n%s", most, out)
	}
}
