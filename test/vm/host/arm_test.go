package host

import (
	"path/filepath"
	"testing"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

// TestNightlyARM installs, runs, upgrades and removes the package on an emulated arm64 board. On an armhf board, the
// test installs the package, and the daemon serves two Services.
func TestNightlyARM(t *testing.T) {
	for _, board := range []struct {
		arch vm.Arch
		test string
	}{{vm.ARM64, "TestPackage"}, {vm.ARMHF, "TestServices"}} {
		vmtest.NeedArch(t, board.arch)
		files := map[string]string{"inside": vmtest.BuildTestFor(t, board.arch, "edgeway/test/vm/host/inside")}
		for _, version := range []string{"1.0.0", "1.1.0"} {
			deb := buildPackageFor(t, board.arch, version)
			files[filepath.Base(deb)] = deb
		}
		t.Run(string(board.arch), func(t *testing.T) {
			runInside(t, vm.Bookworm, board.test, vm.Job{Arch: board.arch, Files: files})
		})
	}
}
