package health

import (
	"fmt"
	"strings"
	"time"

	"edgeway/daemon/pipeline"
	"edgeway/proxiers/fault"
)

func (c *Checker) pipelineFaults() (out []fault.Fault) {
	state := c.pipeline.State()
	if state.Synced() {
		out = backendSyncFaults(&state, time.Now())
	} else {
		out = []fault.Fault{c.firstSyncFault(&state)}
	}
	out = append(out, quarantine(&state)...)
	out = append(out, followers(&state)...)
	if leaving(&state) {
		out = append(out, fault.New("node-leaving", fault.Warning, "",
			"Node %s is being removed from the cluster: /healthz tells load balancers not to use this "+
				"host", state.Snapshot.Node.Name))
	}
	return out
}

func leaving(s *pipeline.State) bool {
	return s.Snapshot != nil && s.Snapshot.Node != nil && s.Snapshot.Node.Leaving
}

// firstSyncFault returns a fault until the first sync has succeeded. The fault is Unhealthy from the start, because a
// host without rules forwards no connections to Services.
func (c *Checker) firstSyncFault(s *pipeline.State) fault.Fault {
	f := fault.Fault{ID: "first-sync", Severity: fault.Unhealthy, Since: s.OutOfSyncSince}
	switch {
	case s.Plan == nil:
		f.Message = "Edgeway has programmed nothing yet: waiting for " + c.unlistedSources()
	case s.Backend.Err != "":
		f.Message = fmt.Sprintf("Edgeway has programmed nothing yet: the first sync failed %s: %s",
			times(s.Backend.Attempts),
			s.Backend.Err)
	case s.Total > 0:
		f.Message = fmt.Sprintf("The first sync is running: %d of %d ServicePorts are programmed", s.Done, s.Total)
	default:
		f.Message = "The first sync is running"
	}
	return f
}

// unlistedSources returns the names of the sources that have not listed all of their objects yet.
func (c *Checker) unlistedSources() string {
	var names []string
	for _, src := range c.sources {
		if st := src.Status(); !st.Synced {
			name := "source " + src.Name()
			if st.Fault.Message != "" {
				name += " (" + st.Fault.Message + ")"
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "the first plan"
	}
	return strings.Join(names, " and ")
}

// backendSyncFaults returns a warning after a failed sync. The fault becomes Unhealthy when the kernel has differed
// from the plan for longer than GracePeriod, whether the syncs fail or one sync hangs.
func backendSyncFaults(s *pipeline.State, now time.Time) []fault.Fault {
	late := !s.OutOfSyncSince.IsZero() && now.Sub(s.OutOfSyncSince) > GracePeriod
	if s.Backend.Err == "" && !late {
		return nil
	}
	f := fault.Fault{ID: "backend-sync", Severity: fault.Warning, Since: s.OutOfSyncSince}
	if late {
		f.Severity = fault.Unhealthy
	}
	switch {
	case s.Backend.Err != "":
		f.Message = fmt.Sprintf("The latest changes are not in the kernel: the sync failed %s: %s",
			times(s.Backend.Attempts), s.Backend.Err)
	case !s.Backend.LastDrift.Before(s.OutOfSyncSince):
		f.Message = fmt.Sprintf("Another program keeps changing Edgeway's rules in the kernel (%s)",
			s.Backend.DriftReason)
	default:
		f.Message = "The latest changes are not in the kernel: a sync is stuck"
	}
	return []fault.Fault{f}
}

func quarantine(s *pipeline.State) []fault.Fault {
	if len(s.Quarantined) == 0 {
		return nil
	}
	first := s.Quarantined[0]
	f := fault.Fault{ID: "quarantine", Severity: fault.Warning, Since: first.Since}
	f.Message = first.String()
	if more := len(s.Quarantined) - 1; more > 0 {
		f.Message += fmt.Sprintf("; and %d more", more)
	}
	return []fault.Fault{f}
}

func followers(s *pipeline.State) []fault.Fault {
	var out []fault.Fault
	for i := range s.Followers {
		f := &s.Followers[i]
		if f.Err != "" {
			out = append(out, fault.Fault{
				ID: "follower-" + f.Name, Severity: fault.Warning, Since: f.Since,
				Message: fmt.Sprintf("Stage %s failed %s: %s", f.Name, times(f.Attempts), f.Err),
			})
		}
	}
	return out
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
