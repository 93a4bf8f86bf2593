package host

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

// TestHost installs, runs, upgrades and removes the package in a virtual machine with systemd 257. Two other virtual
// machines have systemd 252: one boots with another daemon's saved state while the API server is unreachable, and the
// other boots with the state of an earlier version of Edgeway.
func TestHost(t *testing.T) {
	m := newMachines(t)
	t.Run("trixie/package", func(t *testing.T) { runInside(t, vm.Trixie, "TestPackage", m.life) })
	t.Run("bookworm/boot", func(t *testing.T) { runInside(t, vm.Bookworm, "TestBoot", m.boot) })
	t.Run("upgrade", func(t *testing.T) { runInside(t, vm.Bookworm, "TestUpgrade", m.upgraded) })
}

// TestNightlyHost runs the tests of TestHost with the two systemd versions swapped. In the subtest bullseye, nft is too
// old for the nftables backend.
func TestNightlyHost(t *testing.T) {
	m := newMachines(t)
	t.Run("bookworm/package", func(t *testing.T) { runInside(t, vm.Bookworm, "TestPackage", m.life) })
	t.Run("trixie/boot", func(t *testing.T) { runInside(t, vm.Trixie, "TestBoot", m.boot) })
	t.Run("bullseye", func(t *testing.T) { runInside(t, vm.Bullseye, "TestOlder", m.life) })
	t.Run("trixie/upgrade", func(t *testing.T) { runInside(t, vm.Trixie, "TestUpgrade", m.upgraded) })
}

// machines holds three jobs, which test a package's life cycle, a boot, and an upgrade from an earlier version.
type machines struct{ life, boot, upgraded vm.Job }

func newMachines(t *testing.T) machines {
	t.Helper()
	vmtest.Need(t)
	inside := vmtest.BuildTest(t, "edgeway/test/vm/host/inside")
	first, second := buildPackage(t, "1.0.0"), buildPackage(t, "1.1.0")
	return machines{
		life:     vm.Job{Files: map[string]string{"inside": inside, filepath.Base(first): first, filepath.Base(second): second}},
		boot:     bootJob(t, inside, first, saveLastKnown(t), "testdata/site.toml"),
		upgraded: upgradeJob(t, inside, first),
	}
}

// upgradeJob returns a job with the files of a host that ran an earlier version (commit 6e0ca90). The job's files
// include the last-known state, the rules, and a configuration with all keys that later versions have removed. The
// files are in testdata, because building a package from commit 6e0ca90 would need the commit's history and toolchain.
// If EDGEWAY_UPGRADE_FROM is the path to a package of version 0.9.0 that was built from commit 6e0ca90, the test starts
// the earlier version itself.
func upgradeJob(t *testing.T, inside, deb string) vm.Job {
	t.Helper()
	const before = "testdata/before"
	job := bootJob(t, inside, deb, state{dir: before + "/state", kubeconfig: before + "/kubeconfig"},
		before+"/site.toml")
	job.Files["before"] = before
	if old := os.Getenv("EDGEWAY_UPGRADE_FROM"); old != "" {
		job.Files["edgeway_0.9.0-1_amd64.deb"], job.Files[filepath.Base(deb)] = old, deb
	}
	return job
}

// bootJob returns a job with the files of a host that starts the daemon at boot.
func bootJob(t *testing.T, inside, deb string, state state, site string) vm.Job {
	t.Helper()
	const wants = "/etc/systemd/system/multi-user.target.wants/"
	return vm.Job{
		Files: map[string]string{
			"inside":                                     inside,
			"/usr":                                       unpack(t, deb) + "/usr",
			"/var/lib/edgeway":                           state.dir,
			"/etc/edgeway/kubeconfig":                    state.kubeconfig,
			"/etc/edgeway/edgeway.toml":                  "../../../etc/edgeway/edgeway.toml",
			"/etc/edgeway/conf.d/site.toml":              site,
			"/etc/systemd/system/uplink.service":         "testdata/uplink.service",
			"/etc/systemd/system/needs-services.service": "testdata/needs-services.service",
		},
		Links: map[string]string{
			wants + "edgeway.service":        "/usr/lib/systemd/system/edgeway.service",
			wants + "uplink.service":         "/etc/systemd/system/uplink.service",
			wants + "needs-services.service": "/etc/systemd/system/needs-services.service",
		},
	}
}

func unpack(t *testing.T, deb string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "-x", deb, dir).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
	return dir
}

func buildPackage(t *testing.T, version string) string {
	t.Helper()
	return buildPackageFor(t, vm.AMD64, version)
}

func buildPackageFor(t *testing.T, arch vm.Arch, version string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "../../../scripts/build-packages", "--output", dir, string(arch))
	cmd.Env = append(os.Environ(), "EDGEWAY_VERSION="+version)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build of the package: %v\n%s", err, out)
	}
	return filepath.Join(dir, "edgeway_"+version+"-1_"+string(arch)+".deb")
}

// runInside starts a virtual machine with systemd and runs one test of package host/inside in it, in parallel with
// other virtual machines. It reports each test case as a subtest of t.
func runInside(t *testing.T, suite vm.Suite, name string, j vm.Job) {
	t.Helper()
	t.Parallel()
	j.Suite = suite
	if err := vm.Prepare(t.Context(), j); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	start := time.Now()
	j.Systemd, j.Output = true, &out
	j.Env = []string{"NETLAB_ISOLATED=1"} // package netlab requires isolation, which the virtual machine provides
	j.Command = []string{"./inside", "-test.v", "-test.run=^" + name + "$", "-test.timeout=55m"}
	exit, err := vm.Run(t.Context(), j)
	t.Logf("%s: exit code %d after %.0f s", suite, exit, time.Since(start).Seconds())
	cases := parse(out.String())
	for _, c := range cases {
		t.Run(c.name, c.report)
	}
	switch {
	case err != nil:
		t.Fatalf("%v\n%s", err, out.Bytes())
	case len(cases) == 0, exit != 0 && !t.Failed():
		t.Fatalf("exit code %d:\n%s", exit, out.Bytes())
	}
}
