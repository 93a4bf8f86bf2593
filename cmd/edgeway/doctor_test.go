package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"edgeway/daemon/control"
	"edgeway/daemon/doctor"
	"edgeway/daemon/health"
	"edgeway/proxiers/fault"
)

// The doctor reports an invalid configuration as a problem, and still runs the other checks.
func TestDoctorExitsWith4OnProblem(t *testing.T) {
	name := configFile(t, fmt.Sprintf("version = 1\nnope = 1\n[control]\nsocket = %q\n",
		filepath.Join(t.TempDir(), "s")))
	code, stdout, stderr := run(t, "doctor", "--config", name)
	if code != exitUnhealthy || stderr != "" || !strings.HasPrefix(stdout, "1 problem, ") ||
		!strings.Contains(stdout, "\n  problem   configuration: ") ||
		!strings.Contains(stdout, "fix: edgeway config check") {
		t.Errorf("exit %d, err %q, out:\n%s", code, stderr, stdout)
	}
	code, stdout, _ = run(t, "doctor", "--json", "--config", name)
	var r doctor.Report
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != exitUnhealthy || r.Severity != fault.Problem ||
		r.Faults[0].ID != "configuration" {
		t.Errorf("JSON: exit %d, %v, out:\n%s", code, err, stdout)
	}
}

// The daemon is degraded if connections fail, even while /healthz reports that the daemon is healthy.
func TestStatusExitsWith4WhenDegraded(t *testing.T) {
	status := control.Status{
		Version: "1.2.3", Health: health.StateDegraded, Report: health.Report{
			Healthy: true, Ready: true, NodeEligible: true,
			Faults: []fault.Fault{{ID: "ip-forward", Severity: fault.Problem, Message: "it is 0", Fix: "sysctl -w a=1"}},
		},
	}
	code, stdout, _ := run(t, "status", "--config", startFakeDaemon(t, status))
	if code != exitUnhealthy || !strings.HasPrefix(stdout, "edgeway 1.2.3: DEGRADED") ||
		!strings.Contains(stdout, "problem   ip-forward: it is 0\n            fix: sysctl -w a=1\n") {
		t.Errorf("exit %d, out:\n%s", code, stdout)
	}
}
