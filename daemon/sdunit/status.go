package sdunit

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// View is the state of the daemon at one moment.
type View struct {
	Backend string
	State   pipeline.State
	Health  health.Report
	// Switching says that the backend before a reload still has rules.
	Switching bool
	// Sources are asked for their current status.
	Sources []health.Source
	// SavedAt is when the last-known state that is being served was saved; zero: the API server's objects are served.
	SavedAt time.Time
}

// served says that the kernel is programmed, and that the followers, which listen on loopback and serve
// health checks, have run once, with or without success.
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
// It is sent when its meaning changes. An age means the same until it has grown by a tenth or so.
type statusLine struct {
	meaning string
	sent    time.Time // zero: now is the time

	counted *plan.Plan
	counts  pipeline.Counts
}

// force makes the next text be sent in any case.
func (l *statusLine) force() { l.meaning, l.sent = "", time.Time{} }

// next gives the text when it is to be sent.
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

// problems names those of the host, each once.
func (v View) problems() (names []string) {
	for _, c := range v.Health.Faults {
		if c.Severity == fault.Problem && !slices.Contains(names, c.ID) {
			names = append(names, c.ID)
		}
	}
	return names
}

// waiting says why nothing is programmed yet.
func (v View) waiting() string {
	if len(v.Health.Faults) == 0 {
		return "starting"
	}
	return v.Health.Faults[0].String()
}

// unreachable names the sources that do not give the current objects.
func (v View) unreachable(since func(time.Time) string) []string {
	var out []string
	for _, src := range v.Sources {
		st := src.Status()
		if st.Synced && st.Err == "" {
			continue
		}
		name := "source " + src.Name()
		if src.Name() == "kube" {
			name = "API server"
		}
		fault := " unreachable"
		if st.Partial {
			fault = " not read whole"
		}
		if st.Refused {
			fault = " refuses requests"
		}
		switch {
		case !st.LastContact.IsZero():
			out = append(out, name+fault+" for "+since(st.LastContact))
		case st.Refused:
			out = append(out, name+fault)
		case st.Partial:
			out = append(out, name+fault+" yet")
		default:
			out = append(out, name+" not reached yet")
		}
	}
	return out
}

// oneLine keeps an error's text from adding assignments to the datagram, and systemctl's terminal from obeying it.
func oneLine(s string) string { return strings.Join(strings.Fields(text.CleanLine(s)), " ") }

// coarse rounds down so that an age keeps its text for a while: 10 s in the first minute, then what
// age shows.
func coarse(d time.Duration) time.Duration {
	if d < time.Minute {
		return d.Truncate(10 * time.Second)
	}
	return d
}

// age has one unit.
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
