package inside

import (
	"os"
	"strings"
)

const repository = jobDir + "/repository"

// aptGet runs apt-get with the signed repository as its only source.
func (h *host) aptGet(folder string, args ...string) (out string, code int) {
	h.Helper()
	const list = "/etc/apt/sources.list.d/edgeway.list"
	h.write(list, "deb [signed-by="+jobDir+"/edgeway.asc] file:"+folder+" ./\n")
	options := []string{
		"-q", "-o", "Dir::Etc::SourceList=" + list, "-o", "Dir::Etc::SourceParts=-", "-o",
		"APT::Update::Error-Mode=any",
	}
	return h.try("apt-get", append(options, args...)...)
}

func (h *host) take(version string) {
	h.Helper()
	out, code := h.aptGet(repository, "install", "-y", "--no-install-recommends", "--allow-downgrades",
		"edgeway="+version)
	if code != 0 {
		h.Fatalf("install of edgeway %s: exit code %d\n%s", version, code, out)
	}
}

func installFromRepository(h *host) {
	if out, code := h.aptGet(repository, "update"); code != 0 {
		h.Fatalf("apt-get update: exit code %d\n%s", code, out)
	}
	h.take("1.0.0-1")
	h.write(siteFile, siteConfig)
	h.write("/etc/edgeway/manifests/web.yaml", Manifest("web", "10.96.0.10", "fd00:96::10", 30080))
	h.run("systemctl", "enable", "--now", "edgeway", "edgeway-nodeport@30080.socket")
	h.verifyFromHost(clusterIP, clusterIP6, loopback, loopback6)
}

// testModifiedIndex tests that apt rejects a repository with a modified index.
func testModifiedIndex(h *host) {
	const changed = "/var/tmp/changed"
	h.run("cp", "-r", repository, changed)
	h.run("sed", "-i", "s/^Origin: .*/Origin: Other/", changed+"/InRelease")
	if out, code := h.aptGet(changed, "update"); code == 0 || !strings.Contains(out, "signature") {
		h.Errorf("apt-get update takes an index that was changed: exit code %d\n%s", code, out)
	}
	if out, code := h.aptGet(repository, "update"); code != 0 {
		h.Fatalf("apt-get update: exit code %d\n%s", code, out)
	}
}

func upgradeAndBack(h *host) {
	for range 3 {
		for _, version := range []string{"1.1.0", "1.0.0"} {
			before := h.show("edgeway", "MainPID")
			h.verifyUnnoticed(func() {
				h.take(version + "-1")
				h.waitForRestart(before)
			})
			h.eventually("edgeway "+version+": healthy", "edgeway", "status")
		}
	}
}

// testLaterStateVersion tests state files with a later format version. The daemon must wait for the API server, log the
// reason once, and keep the files.
func testLaterStateVersion(h *host) {
	const dir = "/var/lib/edgeway"
	h.run("systemctl", "stop", "edgeway")
	entries, err := os.ReadDir(dir)
	if err != nil {
		h.Fatal(err)
	}
	for _, e := range entries {
		h.run("sed", "-i", `1s/"version":1/"version":999/`, dir+"/"+e.Name())
	}
	h.run("journalctl", "--rotate")
	h.run("systemctl", "start", "--no-block", "edgeway")
	h.eventually("the state is from a newer version of Edgeway", "journalctl", "-u", "edgeway", "-o", "cat", "-n", "50")
	h.verifyFromHost(clusterIP) // the kernel still holds the rules
	for _, e := range entries {
		h.contains(h.run("head", "-c", "200", dir+"/"+e.Name()), `"version":999`)
	}
}
