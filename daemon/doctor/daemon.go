package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"edgeway/daemon/source/kube"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// checkDaemon returns the daemon's faults that no other check reports. If the daemon is not running, the result
// contains the faults of the sources instead.
func checkDaemon(_ context.Context, h *Host) []fault.Fault {
	const details = "edgeway status"
	var out []fault.Fault
	others := []string{kube.ClockID, kube.RangesID} // the check api-server reports these faults
	for _, c := range Checks() {
		others = append(others, c.Name)
	}
	for _, f := range h.Faults {
		if !slices.Contains(others, f.ID) {
			f.Fix = cmp.Or(f.Fix, details)
			out = append(out, f)
		}
	}
	switch {
	case h.DaemonFault.Message != "":
		return append(out, h.DaemonFault)
	case h.PID == 0:
		return append(out, warning("edgeway config check && systemctl start edgeway",
			"no daemon answers at %s: the findings come from the configuration, the manifests and the "+
				"last-known state",
			h.Config.Control.Socket))
	case fault.WorstSeverity(out) > fault.Notice:
	case !h.InForce:
		out = append(out, problem(details, "the daemon (process %d) has not programmed a plan yet", h.PID))
	default:
		out = append(out, ok("the daemon (process %d) has programmed plan %d", h.PID, h.Plan.Generation))
	}
	return out
}

// RootFix is the fix for a check that requires root privileges.
const RootFix = "sudo edgeway doctor"

func checkBackend(ctx context.Context, h *Host) []fault.Fault {
	const others = "edgeway probe  # shows the backends that this host can run"
	err := h.BackendErr
	if err == nil && h.Backend.Probe != nil {
		err = h.Backend.Probe(ctx)
	}
	switch {
	case err != nil && h.Unprivileged && !errors.Is(err, proxiers.ErrUnsupported):
		return []fault.Fault{warning(RootFix, "cannot check whether this host can run the backend %s: %v",
			h.Config.Proxy.Backend, err)}
	case err != nil && h.ActiveBackend.Name != "" && h.ActiveBackend.Name != h.Backend.Name:
		if slices.ContainsFunc(h.Faults, func(f fault.Fault) bool { return f.ID == "fallback" }) {
			return nil // the check daemon reports the daemon's fault
		}
		return []fault.Fault{warning(others,
			"this host cannot run the backend %s, and Edgeway uses %s instead (proxy.fallback): %v",
			h.Config.Proxy.Backend,
			h.ActiveBackend.Name, err)}
	case err != nil:
		return []fault.Fault{problem(others, "this host cannot run the backend %s: %v", h.Config.Proxy.Backend, err)}
	}
	out := []fault.Fault{ok("this host can run the backend %s", h.Backend.Name)}
	if h.Backend.Faults != nil {
		served := slices.DeleteFunc([]plan.Family{plan.IPv4, plan.IPv6},
			func(f plan.Family) bool { return !h.serves(f) })
		for _, f := range h.Backend.Faults(h.Config.Settings(h.Backend.Name), served) {
			out = append(out, warning(f.Fix, "this host can run the backend %s, but %s", h.Backend.Name, f.Message))
		}
	}
	return out
}

const (
	unitName   = "edgeway.service"
	ownUnits   = "/etc/systemd/system"
	shareFiles = "/usr/share/edgeway"
)

// checkDropIn reports a problem if the installed unit lacks the drop-in that the backend needs.
func checkDropIn(_ context.Context, h *Host) []fault.Fault {
	folders := []string{ownUnits, "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}
	has := func(name string) bool {
		return slices.ContainsFunc(folders, func(folder string) bool {
			_, err := h.Read(filepath.Join(folder, name))
			return err == nil
		})
	}
	name := h.Backend.Traits.DropIn
	if name == "" || h.BackendErr != nil || !has(unitName) || has(filepath.Join(unitName+".d", name)) {
		return nil
	}
	folder := filepath.Join(ownUnits, unitName+".d")
	fix := fmt.Sprintf("mkdir -p %s && ln -s %s %s/ && systemctl daemon-reload && systemctl restart edgeway", folder,
		filepath.Join(shareFiles, name), folder)
	return []fault.Fault{problem(fix, "%s lacks the drop-in %s, which the backend %s needs",
		unitName, name, h.Backend.Name)}
}
