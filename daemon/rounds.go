package daemon

import (
	"os"

	"edgeway/daemon/doctor"
	"edgeway/daemon/doctor/firewall"
	"edgeway/daemon/pipeline"
)

// The daemon's own look at the host.

func (i *instance) newRounds() *doctor.Rounds {
	rules := firewall.New() // remembers what it need not read again
	return doctor.NewRounds(doctor.RoundsOptions{
		Moved: i.node.Moved(),
		Host: func() *doctor.Host {
			state := i.pipeline.State()
			return &doctor.Host{
				Config: i.cfg, System: doctor.Kernel{}, Backend: i.component, Lookups: watchedEndpoints,
				Rules: rules.Look,
				Facts: factsOf(&state),
			}
		},
	})
}

// checkNames returns the IDs of the faults that the rounds may find.
func checkNames() (out []string) {
	for _, c := range doctor.Cheap() {
		out = append(out, c.Name)
	}
	return out
}

// factsOf gives what the pipeline knows.
func factsOf(state *pipeline.State) doctor.Facts {
	f := doctor.Facts{Plan: state.InForce, InForce: state.InForce != nil}
	if f.Plan == nil {
		f.Plan = state.Plan
	}
	f.NodeObject = state.Snapshot != nil && state.Snapshot.Node != nil
	return f
}

// facts are what the commands look at the host with.
func (i *instance) facts() doctor.Facts {
	state := i.pipeline.State()
	f := factsOf(&state)
	f.PID, f.Faults = os.Getpid(), i.health.Report().Faults
	return f
}
