package jobs

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
	"time"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

var compared = regexp.MustCompile(`(?m)^\s*conformance: (\S+): [1-9][0-9,]* connections compared, 0 differences$`)

var suites = []suiteRun{
	{backend: "nftables", test: "TestNftables"},
	{backend: "iptables-nft", test: "TestIptablesNft"},
	{backend: "iptables-legacy", test: "TestIptablesLegacy"},
	{backend: "ipvs", test: "TestIpvs", module: "ip_vs"},
	{backend: "ebpf", test: "TestEbpf", cpu: cpuForStorage},
	{backend: "ebpf-tc", test: "TestEbpfTC", cpu: cpuForStorage},
	{backend: "nftables", test: "TestFastPath", leftOut: "/writes"},
}

// requiredRuns lists the conformance runs that every test run includes, on the oldest kernel: the run for the default
// backend, and the run for the ipvs backend, which the host's kernel may not support. In the virtual machine, the other
// backends would use the same programs from the distribution as on the host. The longest test starts first, because it
// would otherwise finish last.
var requiredRuns = []suiteRun{
	{backend: "ipvs", test: "TestIpvs", module: "ip_vs", suite: vm.Bookworm, leftOut: tableTests},
	{backend: "nftables", test: "TestNftables", suite: vm.Bookworm, leftOut: writeTests},
}

// omittedTests matches tests that need no special kernel feature. Tests on the host already cover random walks, faults,
// planted bugs, and a plan with all pairs of routes. omittedTests also matches a drift test if another drift test makes
// the kernel report the same kind of damage.
const omittedTests = "/matrix/every_pair|/planted|/state/partial|/faults|" +
	"/drift/(one_table|service_CIDRs|all_elements|all_rules_of_one_table|the_ruleset|one_of_its_chains|a_dispatch_chain)"

// tableTests matches tests that damage the nft table. The ipvs backend detects such damage in the same way as the
// nftables backend.
const tableTests = "|/drift/(a_rule_is_deleted|all_rules_are_flushed|an_element|all_routes)"

// writeTests matches the tests that count a backend's writes. The number of writes does not depend on the kernel, and
// tests on the host count the same writes.
const writeTests = "|/writes"

func TestConformance(t *testing.T) {
	binary := vmtest.BuildTest(t, "edgeway/test/conformance")
	for _, p := range requiredRuns {
		p.sequences, p.leftOut = 2, omittedTests+p.leftOut
		p.run(t, binary)
	}
}

func TestNightlyConformance(t *testing.T) {
	binary := vmtest.BuildTest(t, "edgeway/test/conformance")
	for _, p := range suites {
		for _, p.suite = range vm.Suites() {
			p.sequences = 30
			p.run(t, binary)
		}
	}
}

// suiteRun describes a run of the conformance suite, which verifies that the backend treats connections as the plan
// requires. The field sequences is the number of random sequences of partial syncs.
type suiteRun struct {
	suite         vm.Suite
	arch          vm.Arch
	backend, test string
	sequences     int
	leftOut       string
	// module is a kernel module that the backend needs, or "" if it needs none.
	module string
	// cpu is QEMU's CPU model for the virtual machine, or "" for the default.
	cpu string
}

func (p suiteRun) run(t *testing.T, binary string) {
	t.Run(path.Join(string(p.suite), string(p.arch), strings.TrimPrefix(p.test, "Test")), func(t *testing.T) {
		t.Parallel()
		out := vmtest.Run(t, vm.Job{
			Suite: p.suite, Arch: p.arch,
			Files: map[string]string{"conformance": binary},
			CPU:   p.cpu,
			Env:   []string{"CONFORMANCE_PACE=3", fmt.Sprintf("CONFORMANCE_SEQUENCES=%d", p.sequences), "CI=true"},
			Command: []string{
				"sh", "-c", `[ -z "$0" ] || modprobe "$0" && exec ./conformance "$@"`, p.module,
				"-test.v", "-test.timeout=230m", "-test.run=^" + p.test + "$", "-test.skip=" + p.leftOut,
			},
			Timeout: 4 * time.Hour,
		})
		if m := compared.FindStringSubmatch(out); m == nil || m[1] != p.backend {
			t.Errorf("the suite does not say of %s that it compared connections and found no difference", p.backend)
		}
	})
}
