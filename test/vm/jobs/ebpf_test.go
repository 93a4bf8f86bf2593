package jobs

import (
	"testing"
	"time"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

// cpuForStorage is vm.DefaultCPU with cmpxchg16b. Without cmpxchg16b, Linux 7.2 has no BPF socket storage, but the ebpf
// backend needs this storage for a socket's destination.
const cpuForStorage = "max,la57=off,erms=off,fsrm=off,smap=off,smep=off,pku=off"

// TestEbpf tests the BPF programs on the oldest kernel. The nftables backend's tests cover the nft table.
func TestEbpf(t *testing.T) {
	bpfPrograms(t, "^Test(Sockets|Short|Orphans|Packets|Masquerade|Flood|Switch|Filters|Unusual|Datagrams|Other|Foreign|Privileges|Restart$|Drift)", "", vm.Bookworm)
}

// TestNightlyEbpf runs all tests of the ebpf backend on every kernel, and loads and unloads the programs while many
// connections are open.
func TestNightlyEbpf(t *testing.T) {
	bpfPrograms(t, ".", "20000", vm.Suites()...)
}

// TestNightlyEbpfWithoutStorage tests that Edgeway falls back to nftables if the kernel has no BPF socket storage
// (Linux 7.2 without cmpxchg16b).
func TestNightlyEbpfWithoutStorage(t *testing.T) {
	vmtest.Run(t, vm.Job{
		Suite: vm.Newest, Files: map[string]string{"ebpf": vmtest.BuildTest(t, "edgeway/proxiers/ebpf")}, Env: []string{"CI=true", "EBPF_NO_STORAGE=1"},
		Command: []string{"./ebpf", "-test.v", "-test.run=^TestWithoutStorage$"},
	})
}

func bpfPrograms(t *testing.T, tests, connections string, suites ...vm.Suite) {
	t.Helper()
	binary := vmtest.BuildTest(t, "edgeway/proxiers/ebpf")
	for _, suite := range suites {
		t.Run(string(suite), func(t *testing.T) {
			t.Parallel()
			vmtest.Run(t, vm.Job{
				Suite: suite, CPU: cpuForStorage, Files: map[string]string{"ebpf": binary}, Env: []string{"CI=true", "EBPF_FULL_TRACKING=1", "EBPF_CONNECTIONS=" + connections},
				Command: []string{"./ebpf", "-test.v", "-test.timeout=50m", "-test.run=" + tests}, Timeout: time.Hour,
			})
		})
	}
}
