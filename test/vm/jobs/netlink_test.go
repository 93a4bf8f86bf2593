package jobs

import (
	"fmt"
	"path"
	"testing"
	"time"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

// netlinkTests lists, by package, the tests that depend on how a kernel accepts and reports nftables transactions.
var netlinkTests = []struct{ pkg, run string }{
	{"proxiers/internal/netlink", "."},
	{"proxiers/internal/nfttable", "^Test(ReadBack|ReadWhile|BatchTooBig|TouchedTable|LongListTakes|OverlappingRanges)"},
	{"proxiers/nftables", "^Test(NetlinkEqualsProgram|ChangeNeedsNoProgram|ChangesBesideOthers|ElementsName)"},
}

// TestNightlyNetlink tests netlink transactions on every kernel, in random sequences and in parallel with other
// programs' transactions. The nftables backend's tests use the same transactions in every run.
func TestNightlyNetlink(t *testing.T) {
	files, command := map[string]string{}, "set -e"
	for _, p := range netlinkTests {
		name := path.Base(p.pkg)
		files[name] = vmtest.BuildTest(t, "edgeway/"+p.pkg)
		command += fmt.Sprintf("\n./%s -test.v -test.timeout=60m -test.run='%s'", name, p.run)
	}
	for _, suite := range vm.Suites() {
		t.Run(string(suite), func(t *testing.T) {
			t.Parallel()
			vmtest.Run(t, vm.Job{
				Suite: suite, Files: files, Env: []string{"CONFORMANCE_SEQUENCES=50"},
				Command: []string{"sh", "-c", command}, Timeout: 2 * time.Hour,
			})
		})
	}
}
