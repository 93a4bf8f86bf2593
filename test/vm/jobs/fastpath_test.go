package jobs

import (
	"testing"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

// TestFastPath proves the fast path where the kernel has a flowtable, which not every machine's has.
func TestFastPath(t *testing.T) { fastPath(t, fastPathTests, vm.Bookworm) }

// TestNightlyFastPath does so on every kernel, and with each kind of device.
func TestNightlyFastPath(t *testing.T) {
	fastPath(t, fastPathTests+"|^TestDeviceKinds", vm.Suites()...)
}

// TestNightlyFastPathSpeed measures what it brings, in instructions: what else the host does has no say in it. The client of short connections
// and who answers share the machine's processor with what is measured. Woken at once, each takes it from the other, in patterns that last for
// seconds and differ by 6 %; so they wait for their turns, on a processor that is fast enough for their timers.
func TestNightlyFastPathSpeed(t *testing.T) {
	binary := vmtest.BuildTest(t, "edgeway/proxiers/flowtable")
	for test, job := range map[string]vm.Job{
		"TestSpeed":            {Command: []string{"./flowtable"}},
		"TestShortConnections": {Command: []string{"chrt", "--batch", "0", "./flowtable"}, MIPS: 1000},
	} {
		t.Run(test, func(t *testing.T) {
			t.Parallel()
			job.Counted, job.Files = true, map[string]string{"flowtable": binary}
			job.Env = []string{"FASTPATH_MUST_RUN=1", "FASTPATH_SPEED=1", "CI=true"}
			job.Command = append(job.Command, "-test.v", "-test.timeout=50m", "-test.run=^"+test+"$")
			vmtest.Run(t, job)
		})
	}
}

// fastPathTests are those that need a flowtable, and no others.
const fastPathTests = "^Test(Takes|Beside|Foreign|Threshold|LifeCycle|Pace|DeviceRace|DevicesThatCome|Hardware)"

func fastPath(t *testing.T, tests string, suites ...vm.Suite) {
	t.Helper()
	binary := vmtest.BuildTest(t, "edgeway/proxiers/flowtable")
	for _, suite := range suites {
		t.Run(string(suite), func(t *testing.T) {
			t.Parallel()
			vmtest.Run(t, vm.Job{
				Suite: suite, CPU: cpuForStorage, Files: map[string]string{"flowtable": binary}, Env: []string{"FASTPATH_MUST_RUN=1", "CI=true"},
				Command: []string{"./flowtable", "-test.v", "-test.timeout=50m", "-test.run=" + tests},
			})
		})
	}
}
