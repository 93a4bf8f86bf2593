package control

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"edgeway/daemon/health"
	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
)

// printer writes lines of a heading and a text, and remembers the first failure.
type printer struct {
	w       io.Writer
	heading string
	err     error
}

func (p *printer) line(heading, format string, args ...any) {
	if heading == p.heading {
		heading = ""
	} else {
		p.heading = heading
	}
	p.print("%-10s %s\n", heading, fmt.Sprintf(format, args...))
}

// print writes a line. The format's own newlines, at its ends, are the only ones: what is foreign cannot look like
// another line.
func (p *printer) print(format string, args ...any) {
	body := strings.TrimLeft(format, "\n")
	space := format[:len(format)-len(body)]
	if p.err == nil {
		_, p.err = io.WriteString(p.w, space+text.CleanLine(fmt.Sprintf(strings.TrimSuffix(body, "\n"), args...))+"\n")
	}
}

// faults prints each fault with its fix.
func (p *printer) faults(heading string, faults []fault.Fault) {
	for _, f := range faults {
		p.line(heading, "%s", f)
		if f.Fix != "" {
			p.line(heading, "fix: %s", f.Fix)
		}
	}
}

// WriteText prints the status for a person: faults first, what is served after them.
func (s Status) WriteText(w io.Writer) error {
	p := &printer{w: w}
	p.print("edgeway %s: %s\n", s.Version, s.verdict())
	for _, c := range s.Faults {
		p.print("  %-9s %s: %s%s\n", c.Severity, c.ID, c, s.since(c))
		if c.Fix != "" {
			p.print("  %-9s fix: %s\n", "", c.Fix)
		}
	}
	s.problems(p)
	if len(s.Ignored) > 0 {
		p.line("ignored", "notices of %s (doctor.ignore)", strings.Join(s.Ignored, ", "))
	}
	s.kernel(p)
	s.sources(p)
	s.node(p)
	s.checks(p)
	s.fastPath(p)
	for i, line := range s.Shortcut {
		p.line(map[bool]string{true: "shortcut"}[i == 0], "%s", line)
	}
	p.line("daemon", "process %d, running for %s, configuration %s", s.PID, age(s.Time.Sub(s.Started)), s.Config)
	return p.err
}

func (s Status) verdict() string {
	switch {
	case !s.Healthy:
		return "UNHEALTHY"
	case s.State == health.StateDegraded:
		return "DEGRADED, connections fail though the rules are right"
	case !s.NodeEligible:
		return "healthy, but not eligible for load balancers"
	case !s.Ready:
		return "healthy, but not ready"
	case fault.Worst(s.Faults) > fault.Notice:
		return "healthy, with restrictions"
	}
	return "healthy"
}

func (s Status) since(c fault.Fault) string {
	if c.Since.IsZero() || strings.HasPrefix(c.ID, "source-") {
		return "" // a source's message says it
	}
	return fmt.Sprintf(" (for %s)", age(s.Time.Sub(c.Since)))
}

func (s Status) kernel(p *printer) {
	p.line("serving", "%s, %s, %s", text.Count(s.Counts.Services, "Service"),
		text.Count(s.Counts.ServicePorts, "ServicePort"), text.Count(s.Counts.Endpoints, "endpoint"))
	p.line("backend", "%s", s.stage(s.Backend))
	for _, f := range s.Followers {
		p.line("followers", "%s", s.stage(f))
	}
	if s.Drift.Repairs > 0 {
		p.line("drift", "%s, the last %s ago: %s", text.Count(int(s.Drift.Repairs), "repair"),
			age(s.Time.Sub(s.Drift.Last)), s.Drift.Reason)
	}
}

func (s Status) stage(st StatusStage) string {
	var parts []string
	if !st.Running.IsZero() {
		running := fmt.Sprintf("a sync is running for %s", age(s.Time.Sub(st.Running)))
		if st.Total > 0 {
			running += fmt.Sprintf(" (%d of %d ServicePorts)", st.Done, st.Total)
		}
		parts = append(parts, running)
	}
	if st.Err != "" {
		parts = append(parts, fmt.Sprintf("failing for %s, %s: %s", age(s.Time.Sub(st.FailingSince)),
			text.Count(st.Attempts, "attempt"), st.Err))
	}
	if st.LastSync.IsZero() {
		parts = append(parts, "no sync has succeeded yet")
	} else {
		parts = append(parts, s.lastSync(st))
	}
	return st.Name + ": " + strings.Join(parts, "; ")
}

func (s Status) lastSync(st StatusStage) string {
	out := fmt.Sprintf("last synced %s ago", age(s.Time.Sub(st.LastSync)))
	if st.Err == "" && (st.Name != s.Backend.Name || s.OutOfSync.IsZero()) {
		out = "in sync, " + out
	}
	if st.Seconds > 0 {
		kind := "partial"
		if st.Full {
			kind = "full"
		}
		took := time.Duration(st.Seconds * float64(time.Second)).Round(100 * time.Microsecond)
		out += fmt.Sprintf("; last change %s, %s in %s", kind, text.Count(st.ServicePorts, "ServicePort"), took)
	}
	return out + "; " + text.Count(int(st.FullSyncs), "full sync") + " and " +
		text.Count(int(st.PartialSyncs), "partial sync")
}

func (s Status) sources(p *printer) {
	for _, src := range s.Sources {
		text := src.Name + ": "
		switch {
		case src.Partial:
			text += "not read whole: " + src.Err
		case src.Refused:
			text += "answers, but does not give its objects: " + src.Err
		case src.Err != "":
			text += "unreachable: " + src.Err
		case src.Synced:
			text += "synced"
		default:
			text += "has not listed all objects yet"
		}
		switch {
		case src.LastContact.IsZero() && (src.Partial || src.Refused): // said
		case src.LastContact.IsZero():
			text += "; no contact yet"
		default:
			text += fmt.Sprintf("; last contact %s ago", age(s.Time.Sub(src.LastContact)))
		}
		p.line("sources", "%s", text)
	}
	switch {
	case s.LastKnown.Serving:
		p.line("sources", "serving the last-known state, saved %s ago (%s)", age(s.Time.Sub(s.LastKnown.SavedAt)),
			s.LastKnown.SavedAt.Format(time.RFC3339))
	case !s.LastKnown.SavedAt.IsZero():
		p.line("sources", "last-known state on disk, saved %s ago", age(s.Time.Sub(s.LastKnown.SavedAt)))
	}
}

func (s Status) node(p *printer) {
	text := s.Node.Name
	if s.Node.Zone != "" {
		text += ", zone " + s.Node.Zone
	}
	if !s.Node.Object && s.listed() {
		text += ", no Node object"
	}
	addrs := make([]string, 0, len(s.Node.NodePortAddrs))
	for _, a := range s.Node.NodePortAddrs {
		addrs = append(addrs, a.String())
	}
	if len(addrs) == 0 {
		addrs = []string{"no address"}
	}
	p.line("node", "%s; NodePorts at %s", text, strings.Join(addrs, ", "))
}

// listed says that the objects are known: right after a reload they are not yet.
func (s Status) listed() bool {
	return s.LastKnown.Serving || !slices.ContainsFunc(s.Sources, func(src StatusSource) bool { return !src.Synced })
}

func (s Status) problems(p *printer) {
	p.faults("problems", s.Problems.First)
	if more := s.Problems.Total - len(s.Problems.First); more > 0 {
		p.line("problems", "and %d more", more)
	}
}

// age is a duration in its two largest units.
func age(d time.Duration) string {
	d = max(0, d)
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
