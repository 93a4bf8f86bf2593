package jobs

import (
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

var compared = regexp.MustCompile(`(?m)^\s*conformance: (\S+): [1-9][0-9,]* connections compared, 0 differences$`)

// suites are the tests of test/conformance for each kernel, by the name of the backend. An emulated machine takes
// minutes for one: iptables is for the oldest and the newest kernel and iptables.
var suites = map[vm.Suite]map[string]string{
	vm.Bookworm: {"nftables": "TestNftables", "iptables-nft": "TestIptablesNft", "iptables-legacy": "TestIptablesLegacy"},
	vm.Trixie:   {"nftables": "TestNftables"},
	vm.Newest:   {"nftables": "TestNftables", "iptables-nft": "TestIptablesNft", "iptables-legacy": "TestIptablesLegacy"},
}

// leftOut are the parts that say nothing of a kernel: planted bugs show that the suite notices them, and the
// random walk of "state" is like that of "faults".
const leftOut = "/planted|/state/partial"

// TestConformance runs the conformance suite on every kernel, with shorter random walks.
func TestConformance(t *testing.T) {
	binary := vmtest.BuildTest(t, "edgeway/test/conformance")
	for _, s := range vm.Suites() {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			var want, tests []string
			for backend, test := range suites[s] {
				want, tests = append(want, backend), append(tests, test)
			}
			out := vmtest.Run(t, vm.Job{
				Suite: s,
				Files: map[string]string{"conformance": binary},
				Env:   []string{"CONFORMANCE_PACE=3", "CONFORMANCE_SEQUENCES=4", "CI=true"},
				Command: []string{
					"./conformance", "-test.v", "-test.timeout=30m",
					"-test.run=^(" + strings.Join(tests, "|") + ")$", "-test.skip=" + leftOut,
				},
				Timeout: 30 * time.Minute,
			})
			var agree []string
			for _, m := range compared.FindAllStringSubmatch(out, -1) {
				agree = append(agree, m[1])
			}
			slices.Sort(agree)
			slices.Sort(want)
			if !slices.Equal(agree, want) {
				t.Errorf("the suite says of %v that it compared connections and found no difference; want %v", agree, want)
			}
		})
	}
}
