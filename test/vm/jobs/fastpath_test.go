package jobs

import (
	"testing"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

// TestFastPath proves the fast path where the kernel has a flowtable, which not every machine's has.
func TestFastPath(t *testing.T) { fastPath(t, vm.Bookworm) }

// TestNightlyFastPath does so on every kernel.
func TestNightlyFastPath(t *testing.T) { fastPath(t, vm.Suites()...) }

// fastPathTests are those that need a flowtable.
const fastPathTests = "^Test(Takes|Beside|ForeignMarks|Threshold|LifeCycle|ForeignDrop|Pace|DeviceRace)"

func fastPath(t *testing.T, suites ...vm.Suite) {
	t.Helper()
	binary := vmtest.BuildTest(t, "edgeway/proxiers/flowtable")
	for _, suite := range suites {
		t.Run(string(suite), func(t *testing.T) {
			t.Parallel()
			vmtest.Run(t, vm.Job{
				Suite: suite, Files: map[string]string{"flowtable": binary}, Env: []string{"FASTPATH_MUST_RUN=1", "CI=true"},
				Command: []string{"./flowtable", "-test.v", "-test.timeout=50m", "-test.run=" + fastPathTests},
			})
		})
	}
}
