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

// suites have the versions of systemd that are in use: 252 and 257.
var suites = []vm.Suite{vm.Bookworm, vm.Trixie}

// TestPackage installs, runs, upgrades and removes the package.
func TestPackage(t *testing.T) {
	vmtest.Need(t)
	files := map[string]string{"inside": vmtest.BuildTest(t, "edgeway/test/vm/host/inside")}
	for _, version := range []string{"1.0.0", "1.1.0"} {
		deb := buildPackage(t, version)
		files[filepath.Base(deb)] = deb
	}
	for _, suite := range suites {
		t.Run(string(suite), func(t *testing.T) { runInside(t, suite, "TestPackage", files, nil) })
	}
}

// TestBoot boots while the API server can not be reached, with what a daemon left behind.
func TestBoot(t *testing.T) {
	vmtest.Need(t)
	files := map[string]string{
		"inside":                             vmtest.BuildTest(t, "edgeway/test/vm/host/inside"),
		"/usr":                               unpack(t, buildPackage(t, "1.0.0")) + "/usr",
		"/etc/edgeway/edgeway.toml":          "../../../etc/edgeway/edgeway.toml",
		"/etc/edgeway/conf.d/site.toml":      "testdata/site.toml",
		"/etc/systemd/system/uplink.service": "testdata/uplink.service",
		"/etc/systemd/system/needs-services.service": "testdata/needs-services.service",
	}
	const wants = "/etc/systemd/system/multi-user.target.wants/"
	links := map[string]string{
		wants + "edgeway.service":        "/usr/lib/systemd/system/edgeway.service",
		wants + "uplink.service":         "/etc/systemd/system/uplink.service",
		wants + "needs-services.service": "/etc/systemd/system/needs-services.service",
	}
	state := lastKnown(t)
	files["/var/lib/edgeway"], files["/etc/edgeway/kubeconfig"] = state.dir, state.kubeconfig
	for _, suite := range suites {
		t.Run(string(suite), func(t *testing.T) { runInside(t, suite, "TestBoot", files, links) })
	}
}

// unpack gives a folder with the files of a package.
func unpack(t *testing.T, deb string) string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "dpkg-deb", "-x", deb, dir).CombinedOutput(); err != nil {
		t.Fatalf("dpkg-deb: %v\n%s", err, out)
	}
	return dir
}

// buildPackage gives the path of the .deb of this tree, called by a version.
func buildPackage(t *testing.T, version string) string {
	t.Helper()
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "../../../scripts/build-packages", "--output", dir, "amd64")
	cmd.Env = append(os.Environ(), "EDGEWAY_VERSION="+version)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build of the package: %v\n%s", err, out)
	}
	return filepath.Join(dir, "edgeway_"+version+"-1_amd64.deb")
}

// runInside runs one test of package inside in a machine with systemd, and reports each of its cases as
// a test of its own.
func runInside(t *testing.T, suite vm.Suite, name string, files, links map[string]string) {
	t.Helper()
	if err := vm.Prepare(t.Context(), suite); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	start := time.Now()
	exit, err := vm.Run(t.Context(), vm.Job{
		Suite: suite, Systemd: true, Files: files, Links: links, Output: &out,
		// The machine itself is the isolation that package netlab asks for.
		Env:     []string{"NETLAB_ISOLATED=1"},
		Command: []string{"./inside", "-test.v", "-test.run=^" + name + "$", "-test.timeout=19m"},
		Timeout: 20 * time.Minute, // takes 3 on a machine that does nothing else
	})
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
