package e2e

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"edgeway/test/e2e/cluster"
)

// operatorRow is a fault that an operator encounters on a host without other faults.
type operatorRow struct {
	name string
	// prepare runs before the daemon starts, and causeFault causes the fault.
	prepare, causeFault func(*operatorRow)
	// id, severity and words describe the fault in the status. id is "" if the status cannot report the fault.
	id, severity string
	words        []string
	// doctorArgs holds the arguments of `edgeway doctor` in addition to --json. doctorID is the fault's ID in the
	// doctor's output, or "" if the doctor uses the same ID as the status.
	doctorArgs []string
	doctorID   string
	// If fromHost is true, the host itself connects to the ClusterIP. If fromHost is false, a client connects to the
	// NodePort.
	fromHost bool
	// stillWorks reports whether the connection works despite the fault. The connection works if the fault only affects
	// the API server or the disk, or if Edgeway repairs the rules.
	stillWorks bool
	// applyFix applies the fix. If applyFix is nil, the printed fix is a command to run on this host.
	applyFix func(*operatorRow, finding)

	*daemon
	n                   *namespace
	clusterIP, nodePort string

	began               time.Time
	wrong               []string
	fix                 finding
	named, healed       time.Duration // 0 until the event happens
	inDoctor, explained string
	proxy               *faultProxy
}

// operatorLimit is the time limit for the status to report a fault, and to become healthy again after the fix.
const operatorLimit = time.Minute

// The status must report each host fault within a minute, and the doctor must report it immediately. For a connection
// that fails, the explain command must predict the failure. The printed fix must remove the fault within a minute, or
// show that another host is at fault.
func TestOperatorsTable(t *testing.T) {
	rows := operatorRows()
	for _, r := range rows {
		r.start(t)
	}
	for i, r := range rows {
		r.begin()
		for _, earlier := range rows[:i] {
			earlier.isNamed()
		}
	}
	poll(rows, (*operatorRow).isNamed)
	for _, r := range rows {
		r.explain()
		r.heal()
	}
	poll(rows, (*operatorRow).isHealed)
	right := 0
	for _, r := range rows {
		r.judge()
		status := "not named"
		if r.named > 0 {
			status = fmt.Sprintf("%s (%s) after %.0f s", r.fix.ID, r.fix.Severity, r.named.Seconds())
		}
		if r.named > 0 && r.inDoctor != "" {
			right++
		}
		t.Logf("%s\n\tstatus:  %s: %s\n\tdoctor:  %s\n\texplain: %s\n\tfix:     %s\n\thealthy after %.0f s", r.name,
			status,
			r.fix.Message, cmp.Or(r.inDoctor, "not named"), r.explained, r.fix.Fix, r.healed.Seconds())
	}
	if t.Logf("status and doctor are right for %d of %d faults", right, len(rows)); right < len(rows)-1 {
		t.Errorf("all but one are wanted")
	}
}

// poll calls check for each row in turn until check returns true for every row or operatorLimit expires.
func poll(rows []*operatorRow, check func(*operatorRow) bool) {
	for deadline := time.Now().Add(operatorLimit); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		all := true
		for _, r := range rows {
			all = check(r) && all
		}
		if all {
			return
		}
	}
}

func (r *operatorRow) start(t *testing.T) {
	t.Helper()
	l := newLab(t)
	r.daemon = l.newDaemon()
	r.n = l.newNamespace()
	if r.prepare != nil {
		r.prepare(r)
	}
	r.watchOnly(r.n)
	r.startReady()
	r.clusterIP, r.nodePort = r.n.createWeb("shop")
	r.waitFor(longTimeout, r.works)
	r.waitFor(longTimeout, r.statusPrints(": healthy\n"))
	r.waitFor(longTimeout, func() error { return r.forwards(0, "forward: ") })
}

func (r *operatorRow) flow() (src, dst string) {
	if r.fromHost {
		return "host", r.clusterIP
	}
	return clientAddr, r.nodePort
}

func (r *operatorRow) works() error {
	src, dst := r.flow()
	if src != "host" {
		return answers(r.client, dst, "ep1")()
	}
	return r.answersHost(dst, "ep1")()
}

func (r *operatorRow) forwards(code int, words ...string) error {
	src, dst := r.flow()
	return r.explains(src, dst, code, words...)()
}

func (r *operatorRow) wrongly(format string, args ...any) {
	r.wrong = append(r.wrong, "WRONG: "+fmt.Sprintf(format, args...))
}

// begin causes the fault and runs the doctor immediately.
func (r *operatorRow) begin() {
	r.t.Helper()
	r.causeFault(r)
	r.began = time.Now()
	if err := r.works(); (err == nil) != r.stillWorks {
		r.wrongly("with the fault the connection works: %t (%v)", err == nil, err)
	}
	out, errs, _ := r.edgeway(append([]string{"doctor", "--json"}, r.doctorArgs...)...)
	for _, f := range r.faultsIn(out, errs) {
		wanted := cmp.Or(r.doctorID, r.id)
		if f.ID == wanted && (f.Severity != "ok" || wanted == "daemon") {
			r.inDoctor = fmt.Sprintf("%s (%s) %s", f.ID, f.Severity, f.Message)
			if r.id == "" {
				r.fix = f
			}
			return
		}
	}
}

func (r *operatorRow) faultsIn(out, errs string) []finding {
	r.t.Helper()
	var report struct{ Faults []finding }
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		r.t.Fatalf("%s: %v in %q %s", r.name, err, out, errs)
	}
	return report.Faults
}

func (r *operatorRow) isNamed() bool {
	if r.named > 0 || r.id == "" {
		return true
	}
	out, errs, _ := r.edgeway("status", "--json")
	for _, f := range r.faultsIn(out, errs) {
		if f.ID == r.id && f.Severity == r.severity && containsAll(f.Object+": "+f.Message, r.words) {
			r.fix, r.named = f, time.Since(r.began)
			return true
		}
	}
	return false
}

func (r *operatorRow) explain() {
	src, dst := r.flow()
	out, errs, code := r.edgeway("explain", "--exit-code", src, dst)
	r.explained, _, _ = strings.Cut(out+errs, "\n")
	if (code == 0) != r.stillWorks {
		r.wrongly("edgeway explain ended with %d:\n%s", code, out)
	}
}

func (r *operatorRow) heal() {
	r.t.Helper()
	r.began = time.Now()
	if r.applyFix != nil {
		r.applyFix(r, r.fix)
		return
	}
	r.runFix(r.fix)
}

// runFix runs a fix on the host exactly as printed, and returns the output. A shell function passes this test's
// configuration file to the edgeway commands in the fix.
func (r *operatorRow) runFix(f finding) string {
	r.t.Helper()
	const edgeway = `edgeway() { "$0" "$@" --config "$CONFIG"; };`
	cmd := r.node.Command(r.t.Context(), "sh", "-ec", edgeway+"\n"+f.Fix, sharedState.binary)
	return r.output(cmd, f, "CONFIG="+r.config, "ROUTER="+r.router)
}

func (r *operatorRow) kubectl(f finding) string {
	r.t.Helper()
	programs, err := exec.CommandContext(r.t.Context(), "../../scripts/controlplane", "kubectl").Output()
	r.must(err)
	access, err := filepath.Abs("../../etc/edgeway/kubernetes-access.yaml")
	r.must(err)
	command := strings.ReplaceAll(f.Fix, "/usr/share/edgeway/examples/kubernetes-access.yaml", access)
	cmd := exec.CommandContext(r.t.Context(), "sh", "-ec", command)
	return r.output(cmd, f, "PATH="+strings.TrimSpace(string(programs))+":"+os.Getenv("PATH"),
		"KUBECONFIG="+sharedState.cluster.Kubeconfig(cluster.Admin))
}

func (r *operatorRow) output(cmd *exec.Cmd, f finding, env ...string) string {
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.Output()
	if code := cmd.ProcessState.ExitCode(); code != 0 && code != 4 { // exit code 4 of edgeway doctor means a problem
		r.wrongly("fix %q: %v\n%s", f.Fix, err, out)
	}
	return string(out)
}

func (r *operatorRow) isHealed() bool {
	if r.healed > 0 {
		return true
	}
	out, errs, code := r.edgeway("status", "--json")
	for _, f := range r.faultsIn(out, errs) {
		if f.Severity != "notice" || f.ID == r.id {
			return false
		}
	}
	if code == 0 && r.works() == nil {
		r.healed = time.Since(r.began)
	}
	return r.healed > 0
}

func (r *operatorRow) judge() {
	r.t.Helper()
	if limit := r.extendLimit(operatorLimit); max(r.named, r.healed) > limit {
		r.wrongly("named after %s, healthy %s after the fix, want %s", r.named, r.healed, limit)
	}
	if r.named == 0 && r.id != "" {
		out, _, _ := r.edgeway("status")
		r.wrongly("status does not name it:\n%s", out)
	}
	if r.inDoctor == "" {
		out, _, _ := r.edgeway(append([]string{"doctor"}, r.doctorArgs...)...)
		r.wrongly("doctor did not name it; now it says:\n%s", out)
	}
	if r.healed == 0 {
		out, _, _ := r.edgeway("status")
		r.wrongly("not healthy: %v\n%s", r.works(), out)
	}
	if len(r.wrong) > 0 {
		r.t.Errorf("%s:\n%s", r.name, strings.Join(r.wrong, "\n"))
	}
}
