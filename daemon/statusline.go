package daemon

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"edgeway/daemon/control"
	"edgeway/daemon/health"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/sdunit"
	"edgeway/daemon/source"
	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// viewer returns the function that describes the instance to systemd.
func (i *instance) viewer() func() sdunit.View {
	var counted *plan.Plan
	var counts pipeline.Counts
	return func() sdunit.View {
		s := i.pipeline.State()
		if s.InForce != counted {
			counted, counts = s.InForce, pipeline.Count(s.InForce)
		}
		status := statusText(&s, counts, i.health.Report(), i.lastKnown(), i.sources.list())
		return sdunit.View{
			Status: i.component.Name + ": " + status, Served: served(&s), Settled: settled(&s, i.leftovers.switching()),
		}
	}
}

// served waits for each follower, because followers listen on loopback and serve health checks.
func served(s *pipeline.State) bool {
	waiting := func(f pipeline.StageState) bool { return f.LastSync.IsZero() && f.Err == "" }
	return s.Synced() && !slices.ContainsFunc(s.Followers, waiting)
}

func settled(s *pipeline.State, switching bool) bool {
	return !s.Backend.LastSync.IsZero() && !switching || s.Backend.Err != ""
}

// statusText returns the text of STATUS= without the name of the backend, such as
//
//	412 Services, 1,203 endpoints, synced 0 s ago; API server unreachable for 5 min
func statusText(
	s *pipeline.State, counts pipeline.Counts, r health.Report, saved control.LastKnown, sources []source.Source,
) string {
	if !s.Synced() {
		return r.Summary()
	}
	parts := []string{text.Count(counts.Services, "Service") + ", " + text.Count(counts.Endpoints, "endpoint")}
	if at := s.Backend.LastSync; !at.IsZero() {
		parts[0] += ", synced " + age(at) + " ago"
	}
	if saved.Serving {
		parts = append(parts, "last-known state, saved "+age(saved.SavedAt)+" ago")
	}
	for _, src := range sources {
		if st := src.Status(); st.Faulty() {
			parts = append(parts, sourceText(src.Name(), st))
		}
	}
	if fault.Worst(r.Faults) > fault.Notice && !strings.HasPrefix(r.Faults[0].ID, "source-") {
		parts = append(parts, r.Summary())
	}
	return strings.Join(parts, "; ")
}

func sourceText(name string, st source.Status) string {
	name = "source " + name
	if name == "source "+kubeLayer {
		name = "API server"
	}
	if st.LastContact.IsZero() {
		return name + " " + st.State() + ", no contact yet"
	}
	return name + " " + st.State() + " for " + age(st.LastContact)
}

// age formats the time since t with a single unit. Below one minute, age changes only every 10 s, because each new
// status line wakes up systemd.
func age(t time.Time) string {
	d := max(0, time.Since(t))
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds())/10*10)
	case d < time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours())/24)
}
