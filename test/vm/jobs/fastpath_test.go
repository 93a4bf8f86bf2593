package jobs

import (
	"testing"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

// TestFastPath tests the fast path in a virtual machine, because the host's kernel may not support flowtables.
func TestFastPath(t *testing.T) { fastPath(t, fastPathTests, vm.Bookworm) }

func TestNightlyFastPath(t *testing.T) {
	fastPath(t, fastPathTests+"|^TestDeviceKinds", vm.Suites()...)
}

// TestNightlyFastPathSpeed measures how many CPU instructions the fast path saves. Other work on the host does not
// affect the number of instructions.
func TestNightlyFastPathSpeed(t *testing.T) {
	vmtest.Run(t, vm.Job{
		Files: map[string]string{"flowtable": vmtest.BuildTest(t, "edgeway/proxiers/flowtable")}, Counted: true,
		Env:     []string{"FASTPATH_MUST_RUN=1", "FASTPATH_SPEED=1", "CI=true"},
		Command: []string{"./flowtable", "-test.v", "-test.timeout=50m", "-test.run=^TestSpeed$"},
	})
}

// fastPathTests matches the tests that need a kernel with support for flowtables.
const fastPathTests = "^Test(Takes|Beside|Backends|Foreign|LifeCycle|Pace|DeviceRace|DevicesThatCome)"

func fastPath(t *testing.T, tests string, suites ...vm.Suite) {
	t.Helper()
	binary := vmtest.BuildTest(t, "edgeway/proxiers/flowtable")
	for _, suite := range suites {
		t.Run(string(suite), func(t *testing.T) {
			t.Parallel()
			vmtest.Run(t, vm.Job{
				Suite: suite, CPU: cpuForStorage, Files: map[string]string{"flowtable": binary}, Env: []string{"FASTPATH_MUST_RUN=1", "CI=true"},
				Command: []string{"sh", "-c", `modprobe ip_vs && exec ./flowtable "$@"`, "sh", "-test.v", "-test.timeout=50m", "-test.run=" + tests},
			})
		})
	}
}
