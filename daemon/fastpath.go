package daemon

import (
	"context"
	"fmt"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/control"
	"edgeway/daemon/nodeinfo"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// fastPath answers questions about the way past the rules.
type fastPath struct {
	cfg     config.FastPath
	backend proxiers.Component
	// offloader is nil where no stage is one.
	offloader proxiers.Offloader
}

func (i *instance) fastPath() *fastPath {
	f := &fastPath{cfg: i.cfg.FastPath, backend: i.component}
	for _, s := range i.stages {
		if o, ok := s.Applier.(proxiers.Offloader); ok {
			f.offloader = o
		}
	}
	return f
}

// missing says why there is no fast path although it is enabled, or "".
func (f *fastPath) missing() string {
	switch {
	case !f.cfg.Enabled:
		return ""
	case f.backend.Traits.NoFastPath != "":
		return fmt.Sprintf("not with the backend %s: %s", f.backend.Name, f.backend.Traits.NoFastPath)
	case f.offloader == nil:
		return ""
	}
	if r, ok := f.offloader.(proxiers.Reporter); ok {
		for _, found := range r.Faults() {
			if found.ID == proxiers.FastPathFault {
				return found.Message
			}
		}
	}
	return ""
}

// faults returns a warning if the fast path is enabled in vain.
func (f *fastPath) faults() []fault.Fault {
	why := f.missing()
	if why == "" {
		return nil
	}
	return []fault.Fault{{
		ID: proxiers.FastPathFault, Severity: fault.Warning,
		Message: "There is no fast path, all connections take the rules: " + why,
		Fix:     "fastpath.enabled = false  # if this host is to do without",
	}}
}

// fastPathTime bounds the question of edgeway status.
const fastPathTime = 5 * time.Second

// status returns the answer for edgeway status, or nil if there is no fast path.
func (f *fastPath) status() *control.StatusFastPath {
	if !f.cfg.Enabled || f.offloader == nil || f.missing() != "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), fastPathTime)
	defer cancel()
	state, err := f.offloader.Offloading(ctx)
	if err != nil {
		return &control.StatusFastPath{Offloading: state, Err: err.Error()}
	}
	return &control.StatusFastPath{Offloading: state}
}

// of says for edgeway explain whether connections to a ServicePort leave the rules. ways are those to the client and to
// the endpoints.
func (f *fastPath) of(svc *plan.ServicePort, origin plan.Origin, ways []nodeinfo.Way) string {
	missing := f.missing()
	switch {
	case !f.cfg.Enabled && !svc.LongLived:
		return ""
	case !f.cfg.Enabled:
		return "no: the Service has opted in, but fastpath.enabled is false"
	case missing != "":
		return "no: " + missing
	case svc.Name.Protocol == plan.SCTP:
		return "no: SCTP has none"
	case !svc.LongLived:
		return "no: the Service has not opted in, by the annotation edgeway.io/traffic-hint: LongLived or in fastpath.services"
	case origin == plan.FromHost:
		return "no: it is for what this host forwards, not for its own connections"
	}
	for _, w := range ways {
		if w.Local {
			return "no: an end of it is on this host, and it is for what this host forwards"
		}
	}
	return "yes, once it was answered"
}
