package host

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

// recipePackages lists the packages that the recipes in the guides need.
var recipePackages = []string{
	"ufw", "firewalld", "systemd-resolved", "jq", "gpg", "gpg-agent", "gpgv", "bird2", "keepalived",
}

// TestNightlyRecipes follows the recipes in the guides with each suite's programs. It also installs the package on a
// host that has iptables but not nft.
func TestNightlyRecipes(t *testing.T) {
	vmtest.Need(t)
	inside := vmtest.BuildTest(t, "edgeway/test/vm/host/inside")
	deb := buildPackage(t, "1.0.0")
	job := vm.Job{Files: map[string]string{
		"inside": inside, filepath.Base(deb): deb,
		"hosts.md": "../../../packaging/doc/hosts.md", "firewalls.md": "../../../packaging/doc/firewalls.md",
		"manifests.md": "../../../packaging/doc/manifests.md",
	}}
	beside := job
	beside.Packages = recipePackages
	// firewalld must not start at boot, because the test in the virtual machine starts it.
	beside.Links = map[string]string{"/etc/systemd/system/firewalld.service": "/dev/null"}
	guides := beside
	guides.Files = maps.Clone(job.Files)
	guides.Files["/usr/local/bin/coredns"] = buildCoreDNS(t)
	for _, suite := range []vm.Suite{vm.Bookworm, vm.Trixie} {
		t.Run(string(suite)+"/beside", func(t *testing.T) { runInside(t, suite, "TestRecipes", beside) })
		t.Run(string(suite)+"/guides", func(t *testing.T) { runInside(t, suite, "TestGuides", guides) })
		t.Run(string(suite)+"/iptables", func(t *testing.T) { runInside(t, suite, "TestIPTablesAlone", job) })
	}
}

// buildCoreDNS builds CoreDNS, which Debian does not package, from its Go module.
func buildCoreDNS(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "go", "install", "-ldflags=-s -w", "github.com/coredns/coredns@v1.14.7")
	cmd.Env = append(os.Environ(), "GOBIN="+dir, "CGO_ENABLED=0", "GOFLAGS=-trimpath")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build of CoreDNS: %v\n%s", err, out)
	}
	return filepath.Join(dir, "coredns")
}
