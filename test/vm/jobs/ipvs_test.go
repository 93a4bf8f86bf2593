package jobs

import (
	"testing"

	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

// TestIPVS runs the ipvs backend's tests in which other programs interfere with the backend.
func TestIPVS(t *testing.T) {
	inIPVS(t, "^Test(Foreign|Dangerous|ServersCleared|RenamedPorts)", vm.Bookworm)
}

func TestNightlyIPVS(t *testing.T) { inIPVS(t, ".", vm.Suites()...) }

func inIPVS(t *testing.T, tests string, suites ...vm.Suite) {
	t.Helper()
	files := map[string]string{
		"edgeway": vmtest.Build(t, "edgeway/cmd/edgeway"),
		"ipvs":    vmtest.BuildTest(t, "edgeway/test/vm/ipvs"),
	}
	for _, suite := range suites {
		t.Run(string(suite), func(t *testing.T) {
			t.Parallel()
			vmtest.Run(t, vm.Job{
				Suite: suite, Files: files,
				Env:     []string{"NETLAB_ISOLATED=1", "CI=true"},
				Command: []string{"./ipvs", "-test.v", "-test.timeout=55m", "-test.run=" + tests},
			})
		})
	}
}
