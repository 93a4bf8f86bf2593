package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"edgeway/daemon/planner"
	"edgeway/daemon/source/kube"
	"edgeway/daemon/source/lastknown"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// daemon returns the daemon's own faults, except for those that are checks here, or that one of them reports.
func daemon(_ context.Context, h *Host) []fault.Fault {
	switch {
	case h.Unasked.Message != "":
		return []fault.Fault{h.Unasked}
	case h.PID == 0:
		return []fault.Fault{warning("systemctl start edgeway",
			"no daemon answers at %s: what follows is of the configuration, the manifests and the last-known state",
			h.Config.Control.Socket)}
	}
	const details = "edgeway status"
	var out []fault.Fault
	others := []string{planner.NoEndpointID, kube.ClockID, kube.RangesID}
	for _, c := range Checks() {
		others = append(others, c.Name)
	}
	for _, f := range h.Faults {
		if !slices.Contains(others, f.ID) && !strings.HasPrefix(f.ID, "source-") {
			f.Fix = orElse(f.Fix, details)
			out = append(out, f)
		}
	}
	switch {
	case len(out) > 0:
	case !h.InForce:
		out = append(out, problem(details, "the daemon, process %d, has programmed nothing yet", h.PID))
	default:
		out = append(out, ok("the daemon, process %d, has plan %d in force", h.PID, h.Plan.Generation))
	}
	return out
}

// AsRoot is the fix for what others than root may not look at.
const AsRoot = "sudo edgeway doctor"

func backend(ctx context.Context, h *Host) []fault.Fault {
	const others = "edgeway probe  # shows which backends can run here"
	err := h.BackendErr
	if err == nil && h.Backend.Probe != nil {
		err = h.Backend.Probe(ctx)
	}
	switch {
	case err != nil && h.Unprivileged && !errors.Is(err, proxiers.ErrUnsupported):
		return []fault.Fault{warning(AsRoot, "it cannot be told whether the backend %s can run here: %v",
			h.Config.Proxy.Backend, err)}
	case err != nil && h.Serving.Name != "" && h.Serving.Name != h.Backend.Name:
		return []fault.Fault{warning(others,
			"the backend %s cannot run here, %s serves instead (proxy.fallback): %v", h.Config.Proxy.Backend,
			h.Serving.Name, err)}
	case err != nil:
		return []fault.Fault{problem(others, "the backend %s cannot run here: %v", h.Config.Proxy.Backend, err)}
	}
	out := []fault.Fault{ok("the backend %s can run here", h.Backend.Name)}
	if h.Backend.Faults != nil {
		served := slices.DeleteFunc([]plan.Family{plan.IPv4, plan.IPv6},
			func(f plan.Family) bool { return !h.serves(f) })
		for _, f := range h.Backend.Faults(h.Config.Settings(h.Backend.Name), served) {
			out = append(out, warning(f.Fix, "the backend %s runs, but %s", h.Backend.Name, f.Message))
		}
	}
	return out
}

// The folders of systemd's units, and of the package's examples.
const (
	unitName   = "edgeway.service"
	ownUnits   = "/etc/systemd/system"
	shareFiles = "/usr/share/edgeway"
)

// dropIn looks whether the unit, if there is one, has the drop-in that the backend needs.
func dropIn(_ context.Context, h *Host) []fault.Fault {
	exists := func(path string) bool { _, err := h.Read(path); return err == nil }
	folders := []string{ownUnits, "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}
	has := func(name string) bool {
		return slices.ContainsFunc(folders, func(folder string) bool { return exists(filepath.Join(folder, name)) })
	}
	name := h.Backend.Traits.DropIn
	switch {
	case !has(unitName) || h.BackendErr != nil:
		return nil
	case name == "":
		return []fault.Fault{ok("the backend %s needs no drop-in of %s", h.Backend.Name, unitName)}
	case has(filepath.Join(unitName+".d", name)):
		return []fault.Fault{ok("%s has the drop-in %s", unitName, name)}
	}
	folder := filepath.Join(ownUnits, unitName+".d")
	fix := fmt.Sprintf("mkdir -p %s && ln -s %s %s/ && systemctl daemon-reload && systemctl restart edgeway", folder,
		filepath.Join(shareFiles, name), folder)
	return []fault.Fault{problem(fix, "%s has no drop-in %s, without which the backend %s cannot run as a service",
		unitName, name, h.Backend.Name)}
}

func sources(_ context.Context, h *Host) []fault.Fault {
	var out []fault.Fault
	for _, s := range h.Sources {
		fix := orElse(s.Fix, "edgeway config check")
		switch {
		case !s.Synced && h.Plan == nil:
			out = append(out, problem(fix, "source %s has not been read whole, and nothing takes its place: %s",
				s.Name, orElse(s.Err, "no complete list yet")))
		case !s.Synced:
			out = append(out, warning(fix, "source %s has not been read whole: %s", s.Name,
				orElse(s.Err, "no complete list yet")))
		case s.Err != "":
			out = append(out, warning(fix, "source %s is not up to date: %s", s.Name, s.Err))
		default:
			out = append(out, ok("source %s has been read whole", s.Name))
		}
	}
	return out
}

func orElse(text, instead string) string {
	if text == "" {
		return instead
	}
	return text
}

// oldState is when the last-known state is old enough to be told of.
const oldState = 24 * time.Hour

func lastKnown(_ context.Context, h *Host) (out []fault.Fault) {
	for _, f := range h.Faults {
		if f.ID == lastknown.FaultID {
			out = append(out, f)
		}
	}
	for _, s := range h.Saved {
		out = append(out, s.look())
	}
	return out
}

func (s Saved) look() fault.Fault {
	at, err := s.At()
	age, was := time.Since(at), "written"
	if s.Ages {
		was = "confirmed"
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return warning("systemctl start edgeway", "there is no last-known state of %s in %s: after a start at which %s cannot be read there are no Services of it", s.Of, s.Folder, s.Of)
	case errors.Is(err, fs.ErrPermission):
		return warning(AsRoot, "the last-known state of %s cannot be read: %v", s.Of, err)
	case err != nil:
		return warning("systemctl restart edgeway  # while "+s.Of+" can be read: the daemon writes it anew",
			"the last-known state of %s cannot be used: %v", s.Of, err)
	case s.Ages && age > oldState:
		return warning("edgeway status  # says why", "the last-known state of %s was confirmed %s ago", s.Of,
			age.Round(time.Hour))
	}
	return ok("the last-known state of %s in %s was %s %s ago", s.Of, s.Folder, was, age.Round(time.Second))
}
