package jobs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edgeway/test/bench/kit"
	"edgeway/test/vm"
	"edgeway/test/vm/vmtest"
)

// TestNightlyIPVSBench compares the ipvs backend with kube-proxy's ipvs mode in a virtual machine. The API server runs
// in the same virtual machine. The virtual machine's clock counts instructions, so other work on the host does not
// affect the measured times.
func TestNightlyIPVSBench(t *testing.T) {
	vmtest.Need(t)
	programs := controlPlaneDir(t)
	files := map[string]string{
		"bench":   vmtest.Build(t, "edgeway/test/bench"),
		"edgeway": vmtest.Build(t, "edgeway/cmd/edgeway"),
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kube-proxy"} {
		files["programs/"+name] = filepath.Join(programs, name)
	}
	out := t.ArtifactDir()
	vmtest.Run(t, vm.Job{
		Files: files, MemoryMB: 5120, Out: out, Timeout: 6 * time.Hour,
		Counted: true, MIPS: 1000, // the API server may exit if its start takes more than a minute
		Env: []string{"EDGEWAY_CONTROLPLANE_BIN=/vm/job/programs"},
		Command: []string{
			"sh", "-c", `modprobe ip_vs && exec ./bench "$@"`, "bench", "-mode=ipvs", "-rounds=1", "-changes=9",
			"-patience=20ms",
			"-edgeway=/vm/job/edgeway", "-kube-proxy=/vm/job/programs/kube-proxy",
			"-json=/vm/out/ipvs.json", "-logs=/vm/out",
		},
	})
	t.Logf("all figures, and the programs' logs, are in %s", out)
	figures, err := kit.Load(filepath.Join(out, "ipvs.json"))
	if err != nil {
		t.Fatal(err)
	}
	for measure, limit := range map[kit.Measure]float64{
		"first sync": 1.0 / 2, "one change, CPU": 1.0 / 50, "new Service": 1.0 / 10, "resident memory": 1.0 / 2, "new connection": 1,
	} {
		ours := kit.Key{Measure: measure, Services: 5000, Program: "edgeway"}
		ratio, ok := figures.Ratio(ours, kit.Key{Measure: measure, Services: 5000, Program: "peer"})
		if !ok || ratio > limit {
			t.Errorf("%s is %.4f of kube-proxy's, want at most %.4f; measured: %t", measure, ratio, limit, ok)
		}
	}
}

// controlPlaneDir returns the directory with the API server, etcd and kube-proxy, and builds missing programs.
func controlPlaneDir(t *testing.T) string {
	t.Helper()
	// The directory in EDGEWAY_CONTROLPLANE_BIN, which other tests also use, may lack kube-proxy.
	if dir := os.Getenv("EDGEWAY_CONTROLPLANE_BIN"); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "kube-proxy")); err == nil {
			return dir
		}
	}
	cmd := exec.CommandContext(t.Context(), "../../../scripts/controlplane", "kube-proxy")
	cmd.Env = append(os.Environ(), "EDGEWAY_CONTROLPLANE_BIN=")
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("build of the control plane: %v", err)
	}
	return strings.TrimSpace(string(out))
}
