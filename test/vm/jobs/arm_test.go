package jobs

import (
	"testing"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

// TestNightlyARM64 tests the default backend, the ebpf backend and the relay on an emulated arm64 board. The tests that
// TestNightlyARM64 omits do not depend on the architecture.
func TestNightlyARM64(t *testing.T) {
	binary := vmtest.BuildTestFor(t, vm.ARM64, "edgeway/test/conformance")
	for _, p := range []suiteRun{
		{backend: "nftables", test: "TestNftables"},
		{backend: "ebpf", test: "TestEbpf"},
		{backend: "ebpf-tc", test: "TestEbpfTC"},
	} {
		p.suite, p.arch, p.sequences, p.leftOut = vm.Bookworm, vm.ARM64, 2, omittedTests+writeTests
		p.run(t, binary)
	}
	for _, pkg := range []string{"proxiers/localnodeport/relay", "proxiers/ebpf"} {
		t.Run(pkg, func(t *testing.T) {
			t.Parallel()
			vmtest.Run(t, vm.Job{
				Arch: vm.ARM64, Files: map[string]string{"tests": vmtest.BuildTestFor(t, vm.ARM64, "edgeway/"+pkg)},
				Env:     []string{"CI=true", "EBPF_FULL_TRACKING=1", "EBPF_SLOW=1"},
				Command: []string{"./tests", "-test.v", "-test.short", "-test.timeout=50m", "-test.skip=Nightly"},
			})
		})
	}
}
