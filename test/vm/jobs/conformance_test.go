package jobs

import (
	"regexp"
	"testing"
	"time"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

var compared = regexp.MustCompile(`(?m)^\s*conformance: (\w+): [1-9][0-9,]* connections compared, 0 differences$`)

// TestConformance runs the conformance suite, all of it, on every kernel.
func TestConformance(t *testing.T) {
	suite := vmtest.BuildTest(t, "edgeway/test/conformance")
	for _, s := range vm.Suites() {
		t.Run(string(s), func(t *testing.T) {
			t.Parallel()
			out := vmtest.Run(t, vm.Job{
				Suite:   s,
				Files:   map[string]string{"conformance": suite},
				Env:     []string{"CONFORMANCE_PACE=3"},
				Command: []string{"./conformance", "-test.v", "-test.timeout=20m"},
				Timeout: 20 * time.Minute,
			})
			if !compared.MatchString(out) {
				t.Error("the suite does not say that it compared connections and found no difference")
			}
		})
	}
}
