package sdunit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// View is the state of the daemon at one point in time.
type View struct {
	Backend string
	State   pipeline.State
	Health  health.Report
	// Switching reports whether the kernel still has the rules of the backend that was used before a reload.
	Switching bool
	// Sources report their current status.
	Sources []source.Source
	// SavedAt is the time of the last-known state that Edgeway serves, or zero if Edgeway serves the API server's
	// objects.
	SavedAt time.Time
}

// served reports whether the kernel is programmed and every follower has run at least once, even if a follower
// failed. Followers listen on loopback and serve health checks.
func (v View) served() bool {
	for i := range v.State.Followers {
		if f := &v.State.Followers[i]; f.LastSync.IsZero() && f.Err == "" {
			return false
		}
	}
	return v.State.Synced()
}

// statusLine is the text of STATUS=, such as
//
//	nftables: 412 Services, 1,203 endpoints, synced 3 s ago; API server unreachable for 5 min
//
// The Notifier sends a statusLine when its meaning changes. An age counts as unchanged while its rounded value
// (coarse) stays the same.
type statusLine struct {
	meaning string
	sent    time.Time // sent is zero if the next line must be sent immediately

	counted *plan.Plan
	counts  pipeline.Counts
}

// force causes the Notifier to send the next status line even if the line has not changed.
func (l *statusLine) force() { l.meaning, l.sent = "", time.Time{} }

// next returns the status line. changed reports whether the line must be sent.
func (l *statusLine) next(v View) (text string, changed bool) {
	now := time.Now()
	if now.Sub(l.sent) < statusEvery {
		return "", false
	}
	if l.counted != v.State.InForce {
		l.counted, l.counts = v.State.InForce, pipeline.Count(v.State.InForce)
	}
	meaning := v.text(l.counts, func(t time.Time) string { return age(coarse(now.Sub(t))) })
	if meaning == l.meaning {
		return "", false
	}
	l.meaning, l.sent = meaning, now
	return v.text(l.counts, func(t time.Time) string { return age(now.Sub(t)) }), true
}

func (v View) text(counts pipeline.Counts, since func(time.Time) string) string {
	if !v.State.Synced() {
		return oneLine(v.Backend + ": " + v.waiting())
	}
	parts := []string{v.Backend + ": " + text.Count(counts.Services, "Service") + ", " +
		text.Count(counts.Endpoints, "endpoint")}
	if at := v.State.Backend.LastSync; !at.IsZero() {
		parts[0] += ", synced " + since(at) + " ago"
	}
	if names := v.problems(); len(names) > 0 {
		parts = append(parts, "degraded: "+strings.Join(names, ", "))
	}
	if !v.State.OutOfSync.IsZero() && v.State.Backend.Err != "" {
		parts = append(parts, "sync failing for "+since(v.State.OutOfSync))
	}
	if !v.SavedAt.IsZero() {
		parts = append(parts, "last-known state, saved "+since(v.SavedAt)+" ago")
	}
	parts = append(parts, v.unreachable(since)...)
	for i := range v.State.Followers {
		if f := &v.State.Followers[i]; f.Err != "" {
			parts = append(parts, f.Name+" failing for "+since(f.Since))
		}
	}
	isNotice := func(f fault.Fault) bool { return f.Severity == fault.Notice }
	if n := len(slices.DeleteFunc(v.State.Problems(), isNotice)); n > 0 {
		parts = append(parts, text.Count(n, "object problem"))
	}
	return oneLine(strings.Join(parts, "; "))
}

// problems returns the distinct IDs of the host's problems.
func (v View) problems() (names []string) {
	for _, c := range v.Health.Faults {
		if c.Severity == fault.Problem && !slices.Contains(names, c.ID) {
			names = append(names, c.ID)
		}
	}
	return names
}

// waiting returns the reason why the kernel is not programmed yet.
func (v View) waiting() string {
	if len(v.Health.Faults) == 0 {
		return "starting"
	}
	return v.Health.Faults[0].String()
}

// unreachable describes the sources that do not provide their current objects.
func (v View) unreachable(since func(time.Time) string) []string {
	var out []string
	for _, src := range v.Sources {
		st := src.Status()
		if !st.Faulty() {
			continue
		}
		name := "source " + src.Name()
		if src.Name() == "kube" {
			name = "API server"
		}
		age := ", no contact yet"
		if !st.LastContact.IsZero() {
			age = " for " + since(st.LastContact)
		}
		out = append(out, name+" "+st.State()+age)
	}
	return out
}

// oneLine prevents the text of an error from adding assignments to the datagram or controlling the terminal of
// systemctl.
func oneLine(s string) string { return strings.Join(strings.Fields(text.CleanLine(s)), " ") }

// coarse rounds an age below one minute down to a multiple of 10 s, so that the text changes less often. The text of a
// longer age changes rarely enough.
func coarse(d time.Duration) time.Duration {
	if d < time.Minute {
		return d.Truncate(10 * time.Second)
	}
	return d
}

// age formats a duration with a single unit.
func age(d time.Duration) string {
	d = max(0, d)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours())/24)
}
