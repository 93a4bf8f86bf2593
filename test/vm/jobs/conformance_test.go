package jobs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

var compared = regexp.MustCompile(`(?m)^\s*conformance: (\S+): [1-9][0-9,]* connections compared, 0 differences$`)

// suites are the tests of test/conformance with the name of the backend.
var suites = []proof{
	{backend: "nftables", test: "TestNftables"},
	{backend: "iptables-nft", test: "TestIptablesNft"},
	{backend: "iptables-legacy", test: "TestIptablesLegacy"},
	{backend: "ipvs", test: "TestIpvs", module: "ip_vs"},
	{backend: "ebpf", test: "TestEbpf", cpu: cpuForStorage},
	{backend: "ebpf-tc", test: "TestEbpfTC", cpu: cpuForStorage},
	{backend: "nftables", test: "TestFastPath", leftOut: "/writes"},
}

// proved is what every run proves on the oldest kernel: the backend that this host's kernel may lack, and the one that a
// host has by default. The others write through the same programs of the distribution here and there. What takes longest
// comes first, so that it is not what is waited for.
var proved = []proof{
	{backend: "ipvs", test: "TestIpvs", module: "ip_vs", suite: vm.Bookworm, leftOut: ofTable},
	{backend: "nftables", test: "TestNftables", suite: vm.Bookworm, leftOut: ofHost},
}

// leftOut are the parts that ask nothing of a kernel that others do not: which rules a plan becomes is proved without
// emulation, by the matrix of all pairs of routes, by faults and by random walks; that the suite notices mistakes, by
// planted bugs. Of the damages the kernel tells by the same kind of message as of one that stays, some are left out.
const leftOut = "/matrix/every_pair|/planted|/state/partial|/faults|" +
	"/drift/(one_table|service_CIDRs|all_elements|all_rules_of_one_table|the_ruleset|one_of_its_chains|a_dispatch_chain)"

// ofTable are damages that the table of nftables tells of, as it does for the backend of that name.
const ofTable = "|/drift/(a_rule_is_deleted|all_rules_are_flushed|an_element|all_routes)"

// ofHost is about what a backend writes, whatever the kernel, and is counted without emulation where it can run so.
const ofHost = "|/writes"

// TestConformance proves backends on another kernel.
func TestConformance(t *testing.T) {
	binary := vmtest.BuildTest(t, "edgeway/test/conformance")
	for _, p := range proved {
		p.sequences, p.leftOut = 2, leftOut+p.leftOut
		p.run(t, binary)
	}
}

// TestNightlyConformance runs all of the suite for each backend on every kernel.
func TestNightlyConformance(t *testing.T) {
	binary := vmtest.BuildTest(t, "edgeway/test/conformance")
	for _, p := range suites {
		for _, p.suite = range vm.Suites() {
			p.sequences = 30
			p.run(t, binary)
		}
	}
}

// proof is a run of the suite for one backend, with random walks of that many sequences.
type proof struct {
	suite         vm.Suite
	backend, test string
	sequences     int
	leftOut       string
	// module is what the backend finds loaded.
	module string
	// cpu is the machine's, if not the usual one.
	cpu string
}

func (p proof) run(t *testing.T, binary string) {
	t.Run(string(p.suite)+"/"+strings.TrimPrefix(p.test, "Test"), func(t *testing.T) {
		t.Parallel()
		out := vmtest.Run(t, vm.Job{
			Suite: p.suite,
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
