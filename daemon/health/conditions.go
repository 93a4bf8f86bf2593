package health

import (
	"fmt"
	"strings"
	"time"

	"edgeway/daemon/pipeline"
)

// firstSync is unhealthy from the start: a host that has programmed nothing serves nothing.
func (c *Checker) firstSync(s *pipeline.State) Condition {
	cond := Condition{Name: "first-sync", Level: Unhealthy, Since: s.OutOfSync}
	switch {
	case s.Plan == nil:
		cond.Message = "Nothing is programmed yet: waiting for " + c.missing()
	case s.Backend.Err != nil:
		cond.Message = fmt.Sprintf("Nothing is programmed yet: the first sync failed %s: %v", times(s.Backend.Attempts),
			s.Backend.Err)
	case s.Total > 0:
		cond.Message = fmt.Sprintf("The first sync is running: %d of %d ServicePorts are programmed", s.Done, s.Total)
	default:
		cond.Message = "The first sync is running"
	}
	return cond
}

// missing names the sources that have not listed all objects.
func (c *Checker) missing() string {
	var names []string
	for _, src := range c.sources {
		if st := src.Status(); !st.Synced {
			name := "source " + src.Name()
			if st.Err != "" {
				name += " (" + st.Err + ")"
			}
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "the first plan"
	}
	return strings.Join(names, " and ")
}

// backendSync is a warning from the first failure, and unhealthy when the kernel has not agreed for
// longer than the grace time, whether the syncs fail or one of them is stuck.
func backendSync(s *pipeline.State, now time.Time) []Condition {
	late := !s.OutOfSync.IsZero() && now.Sub(s.OutOfSync) > Grace
	if s.Backend.Err == nil && !late {
		return nil
	}
	cond := Condition{Name: "backend-sync", Level: Warning, Since: s.OutOfSync}
	if late {
		cond.Level = Unhealthy
	}
	switch {
	case s.Backend.Err != nil:
		cond.Message = fmt.Sprintf("The latest changes are not in the kernel: the sync failed %s: %v",
			times(s.Backend.Attempts), s.Backend.Err)
	case !s.Backend.LastDrift.Before(s.OutOfSync):
		cond.Message = fmt.Sprintf("The kernel loses what Edgeway writes: another program changes it each time (%s)",
			s.Backend.DriftReason)
	default:
		cond.Message = "The latest changes are not in the kernel: a sync is stuck"
	}
	return []Condition{cond}
}

func quarantine(s *pipeline.State) []Condition {
	if len(s.Quarantined) == 0 {
		return nil
	}
	first := s.Quarantined[0]
	cond := Condition{Name: "quarantine", Level: Warning, Since: first.Since}
	cond.Message = first.String()
	if more := len(s.Quarantined) - 1; more > 0 {
		cond.Message += fmt.Sprintf("; and %d more", more)
	}
	return []Condition{cond}
}

func followers(s *pipeline.State) []Condition {
	var out []Condition
	for i := range s.Followers {
		f := &s.Followers[i]
		if f.Err != nil {
			out = append(out, Condition{
				Name: "follower-" + f.Name, Level: Warning, Since: f.Since,
				Message: fmt.Sprintf("Stage %s failed %s: %v", f.Name, times(f.Attempts), f.Err),
			})
		}
	}
	return out
}

func nodeLeaving(s *pipeline.State) (bool, Condition) {
	if s.Snapshot == nil || s.Snapshot.Node == nil || !s.Snapshot.Node.Leaving {
		return false, Condition{}
	}
	return true, Condition{
		Name: "node-leaving", Level: Warning,
		Message: fmt.Sprintf("Node %s is being removed from the cluster: load balancers are told not to use it",
			s.Snapshot.Node.Name),
	}
}

// sourceFaults never make the host unhealthy: the last objects of a source are still served.
func (c *Checker) sourceFaults(now time.Time) []Condition {
	var out []Condition
	for _, src := range c.sources {
		st := src.Status()
		if st.Synced && st.Err == "" {
			continue
		}
		cond := Condition{Name: "source-" + src.Name(), Level: Warning, Since: st.LastContact, Mend: st.Mend}
		why := st.Err
		if why == "" {
			why = "it has not listed all objects yet"
		}
		ago := now.Sub(st.LastContact).Round(time.Second)
		switch {
		case st.Partial && st.LastContact.IsZero():
			cond.Message = fmt.Sprintf("Source %s has not been read whole yet: %s", src.Name(), why)
		case st.Partial:
			cond.Message = fmt.Sprintf("Source %s was read whole %s ago for the last time: %s", src.Name(), ago, why)
		case st.Refused && st.LastContact.IsZero():
			cond.Message = fmt.Sprintf("Source %s answers, but has not given its objects yet: %s", src.Name(), why)
		case st.Refused:
			cond.Message = fmt.Sprintf("Source %s answers, but has given nothing for %s: %s", src.Name(), ago, why)
		case st.LastContact.IsZero():
			cond.Message = fmt.Sprintf("Source %s has not been reached yet: %s", src.Name(), why)
		default:
			cond.Message = fmt.Sprintf("Source %s is unreachable, last contact %s ago: %s", src.Name(), ago, why)
		}
		out = append(out, cond)
	}
	return out
}

func times(n int) string {
	if n == 1 {
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}
