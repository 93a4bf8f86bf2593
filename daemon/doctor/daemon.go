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

	"edgeway/daemon/doctor/finding"
	"edgeway/daemon/health"
)

// daemon tells the daemon's own conditions, but for those that are checks here.
func daemon(_ context.Context, h *Host) []finding.Finding {
	if h.PID == 0 {
		return []finding.Finding{warning("systemctl start edgeway", "no daemon answers at %s: what follows is of the configuration, the manifests and the last-known state", h.Config.Control.Socket)}
	}
	const details = "edgeway status"
	var out []finding.Finding
	for _, c := range h.Conditions {
		isCheck := func(check Check) bool { return check.Name == c.Name }
		switch {
		case slices.ContainsFunc(Checks(), isCheck), strings.HasPrefix(c.Name, "source-"):
		case c.Level == health.Unhealthy, c.Level == health.Problem:
			out = append(out, problem(orElse(c.Mend, details), "%s: %s", c.Name, c.Message))
		default:
			out = append(out, warning(orElse(c.Mend, details), "%s: %s", c.Name, c.Message))
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

func backend(ctx context.Context, h *Host) []finding.Finding {
	const others = "edgeway probe  # shows which backends can run here"
	err := h.BackendErr
	if err == nil && h.Backend.Probe != nil {
		err = h.Backend.Probe(ctx)
	}
	if err != nil {
		return []finding.Finding{problem(others, "the backend %s cannot run here: %v", h.Config.Proxy.Backend, err)}
	}
	return []finding.Finding{ok("the backend %s can run here", h.Backend.Name)}
}

// The folders of systemd's units, and of the package's examples.
const (
	unitName   = "edgeway.service"
	ownUnits   = "/etc/systemd/system"
	shareFiles = "/usr/share/edgeway"
)

// dropIn looks whether the unit, if there is one, has the drop-in that the backend needs.
func dropIn(_ context.Context, h *Host) []finding.Finding {
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
		return []finding.Finding{ok("the backend %s needs no drop-in of %s", h.Backend.Name, unitName)}
	case has(filepath.Join(unitName+".d", name)):
		return []finding.Finding{ok("%s has the drop-in %s", unitName, name)}
	}
	folder := filepath.Join(ownUnits, unitName+".d")
	mend := fmt.Sprintf("mkdir -p %s && ln -s %s %s/ && systemctl daemon-reload && systemctl restart edgeway", folder, filepath.Join(shareFiles, name), folder)
	return []finding.Finding{problem(mend, "%s has no drop-in %s, without which the backend %s cannot run as a service", unitName, name, h.Backend.Name)}
}

func sources(_ context.Context, h *Host) []finding.Finding {
	var out []finding.Finding
	for _, s := range h.Sources {
		switch {
		case !s.Synced && h.Plan == nil:
			out = append(out, problem("edgeway config check", "source %s has not been read whole, and nothing takes its place: %s", s.Name, orElse(s.Err, "no complete list yet")))
		case !s.Synced:
			out = append(out, warning("edgeway config check", "source %s has not been read whole: %s", s.Name, orElse(s.Err, "no complete list yet")))
		case s.Err != "":
			out = append(out, warning("edgeway config check", "source %s is not up to date: %s", s.Name, s.Err))
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

func lastKnown(_ context.Context, h *Host) []finding.Finding {
	if h.Saved == nil {
		return nil
	}
	folder := h.Config.Source.LastKnown.Directory
	saved, err := h.Saved()
	switch age := time.Since(saved); {
	case errors.Is(err, fs.ErrNotExist):
		return []finding.Finding{warning("systemctl start edgeway", "there is no last-known state in %s: after a start without the API server there are no Services", folder)}
	case errors.Is(err, fs.ErrPermission):
		return []finding.Finding{warning("sudo edgeway doctor", "the last-known state cannot be read: %v", err)}
	case err != nil:
		return []finding.Finding{warning("systemctl restart edgeway  # while the API server can be reached: the daemon writes it anew", "the last-known state cannot be used: %v", err)}
	case age > oldState:
		return []finding.Finding{warning("edgeway status  # says why", "the last-known state was confirmed %s ago", age.Round(time.Hour))}
	default:
		return []finding.Finding{ok("the last-known state in %s was confirmed %s ago", folder, age.Round(time.Second))}
	}
}
