package control

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
)

// Print prints the verdict, the faults, the number of served Services, and then the state of each component.
func (s Status) Print(p *text.Screen) {
	worst, verdict, reason := s.verdict()
	p.PrintVerdict(worst, fmt.Sprintf("edgeway %s: %s", s.Version, verdict), reason)
	for _, f := range s.Faults {
		p.PrintFault(f, f.String()+s.since(f))
	}
	for _, f := range s.Problems.FirstFaults {
		p.PrintRow("problems", "%s", f)
		p.PrintFix(f.Fix)
	}
	if more := s.Problems.Total - len(s.Problems.FirstFaults); more > 0 {
		p.PrintRow("problems", "and %d more", more)
	}
	if len(s.Ignored) > 0 {
		p.PrintRow("ignored", "notices of %s (doctor.ignore)", strings.Join(s.Ignored, ", "))
	}
	p.PrintRow("serving", "%s, %s, %s", text.Count(s.Counts.Services, "Service"),
		text.Count(s.Counts.ServicePorts, "ServicePort"), text.Count(s.Counts.Endpoints, "endpoint"))
	s.printStages(p)
	s.printSources(p)
	s.printNode(p)
	if c := s.Checks; c != nil {
		p.PrintRow("checks", "%s checked, %d not responding", text.Count(c.Endpoints, "endpoint"), c.Dead)
	}
	s.printFastPath(p)
	if p.Verbose {
		for _, line := range s.Shortcut {
			p.PrintRow("shortcut", "%s", line)
		}
	}
	p.PrintRow("daemon", "process %d, running for %s, configuration %s", s.PID, s.age(s.Started), s.Config)
}

func (s Status) verdict() (worst fault.Severity, verdict, reason string) {
	switch {
	case !s.Healthy:
		return fault.Unhealthy, "UNHEALTHY", ""
	case s.Health == health.StateDegraded:
		return fault.Problem, "DEGRADED,", "connections fail although the rules are correct"
	case !s.NodeEligible:
		return fault.Warning, "healthy,", "but this host is not eligible for load balancing"
	case !s.Ready:
		return fault.Warning, "healthy,", "but not ready"
	case fault.WorstSeverity(s.Faults) > fault.Notice:
		return fault.Warning, "healthy,", "with restrictions"
	}
	return fault.OK, "healthy", ""
}

func (s Status) since(f fault.Fault) string {
	if f.Since.IsZero() || strings.HasPrefix(f.ID, "source-") {
		return "" // a source's message already contains the time
	}
	return fmt.Sprintf(" (for %s)", s.age(f.Since))
}

// printStages prints the backend's state, and how many times each stage has reverted other programs' changes. Without
// --verbose, printStages omits the followers' states, because the list of faults already names a failing follower.
func (s Status) printStages(p *text.Screen) {
	running := ""
	if st := s.Backend; !st.RunningSince.IsZero() {
		running = "; a sync has been running for " + s.age(st.RunningSince)
		if s.Total > 0 {
			running += fmt.Sprintf(" (%d of %d ServicePorts)", s.Done, s.Total)
		}
	}
	p.PrintRow("backend", "%s%s%s", s.stage(&s.Backend, !s.OutOfSyncSince.IsZero()), running, details(p, &s.Backend))
	if p.Verbose {
		for i := range s.Followers {
			p.PrintRow("followers", "%s%s", s.stage(&s.Followers[i], false), details(p, &s.Followers[i]))
		}
	}
	for _, st := range s.Stages() {
		if st.DriftRepairs > 0 {
			p.PrintRow("drift", "%s reverted changes to %s, the last %s ago: %s",
				text.Count(int(st.DriftRepairs), "sync"), st.Name, s.age(st.LastDrift), st.DriftReason)
		}
	}
}

func (s Status) stage(st *pipeline.StageState, behind bool) string {
	out := st.Name + ": in sync"
	switch {
	case st.Err != "":
		out = fmt.Sprintf("%s: failing for %s, %s", st.Name, s.age(st.Since), text.Count(st.Attempts, "attempt"))
	case st.LastSync.IsZero():
		return st.Name + ": no sync has succeeded yet"
	case behind:
		out = st.Name + ": out of sync"
	}
	if !st.LastSync.IsZero() {
		out += fmt.Sprintf(", last synced %s ago", s.age(st.LastSync))
	}
	return out
}

func details(p *text.Screen, st *pipeline.StageState) string {
	if !p.Verbose {
		return ""
	}
	out := fmt.Sprintf("; %s and %s", text.Count(int(st.FullSyncs), "full sync"),
		text.Count(int(st.PartialSyncs), "partial sync"))
	if st.Duration > 0 {
		kind := map[bool]string{true: "full", false: "partial"}[st.Full]
		out += fmt.Sprintf("; last change: %s sync, %s in %s", kind, text.Count(st.Size, "ServicePort"),
			st.Duration.Round(100*time.Microsecond))
	}
	return out
}

func (s Status) printSources(p *text.Screen) {
	for _, src := range s.Sources {
		contact := "no contact yet"
		if !src.LastContact.IsZero() {
			contact = fmt.Sprintf("last contact %s ago", s.age(src.LastContact))
		}
		p.PrintRow("sources", "%s: %s; %s", src.Name, src.State(), contact)
	}
	switch saved := s.LastKnown.SavedAt; {
	case s.LastKnown.Serving:
		p.PrintRow("sources", "serving the last-known state, saved %s ago (%s)",
			s.age(saved), saved.Format(time.RFC3339))
	case !saved.IsZero():
		p.PrintRow("sources", "last-known state on disk, saved %s ago", s.age(saved))
	}
}

func (s Status) printNode(p *text.Screen) {
	if s.Node == nil {
		return
	}
	name := s.Node.Name + text.WithPrefix(", zone ", s.Zone)
	// Immediately after a reload, the daemon does not yet know whether this host has a Node object.
	listed := s.LastKnown.Serving || !slices.ContainsFunc(s.Sources, func(src StatusSource) bool { return !src.Synced })
	if !s.NodeObject && listed {
		name += ", no Node object"
	}
	p.PrintRow("node", "%s; NodePorts at %s", name,
		join(slices.Concat(s.Node.NodePortAddrs, s.Node.LoopbackAddrs), "no address"))
}

func (s Status) printFastPath(p *text.Screen) {
	f := s.FastPath
	if f == nil {
		return
	}
	total, ports := 0, text.Count(len(f.Services), "ServicePort")
	for i := range f.Services {
		total += f.Services[i].Flows
	}
	switch {
	case len(f.Services) == 0:
		p.PrintRow("fast path", "no Service has opted in")
	case f.Err != "":
		p.PrintRow("fast path", "%s; cannot read the offloaded connections: %s", ports, f.Err)
	default:
		p.PrintRow("fast path", "%s of %s", text.Count(total, "connection"), ports)
	}
	if !p.Verbose {
		return
	}
	p.PrintRow("fast path", "devices: %s", join(f.Devices, "none"))
	for _, svc := range f.Services {
		p.PrintRow("fast path", "%s (%s): %s, %d packets, %d bytes", svc.Name, svc.Family,
			text.Count(svc.Flows, "connection"), svc.Packets, svc.Bytes)
	}
}

// age formats the time since t in the two largest units.
func (s Status) age(t time.Time) string {
	d := max(0, s.Time.Sub(t))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh%dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%dh", int(d.Hours())/24, int(d.Hours())%24)
}
