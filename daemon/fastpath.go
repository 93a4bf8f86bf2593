package daemon

import (
	"context"
	"fmt"
	"slices"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/control"
	"edgeway/daemon/health"
	"edgeway/daemon/nodeinfo"
	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// fastPath is what is known of the way past the rules.
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

// missing says why there is none though it is enabled; empty: there is one, or it is not enabled.
func (f *fastPath) missing() string {
	switch {
	case !f.cfg.Enabled:
		return ""
	case f.backend.Traits.NoFastPath != "":
		return fmt.Sprintf("not with the backend %s: %s", f.backend.Name, f.backend.Traits.NoFastPath)
	case f.offloader == nil:
		return ""
	}
	if err := f.offloader.Unavailable(); err != nil {
		return err.Error()
	}
	return ""
}

// conditions are for who enabled it in vain.
func (f *fastPath) conditions() []health.Condition {
	c := health.Condition{Name: "fast-path", Level: health.Warning}
	if why := f.missing(); why != "" {
		c.Message, c.Mend = "There is no fast path, all connections take the rules: "+why, "fastpath.enabled = false  # if this host is to do without"
		return []health.Condition{c}
	}
	if f.offloader == nil || f.offloader.Degraded() == nil {
		return nil
	}
	c.Message = fmt.Sprintf("The fast path leads through the kernel, not through the hardware of network devices as fastpath.hardware_offload wants: %v", f.offloader.Degraded())
	c.Mend = "fastpath.hardware_offload = false  # or fastpath.devices with those alone that can"
	return []health.Condition{c}
}

// fastPathTime bounds the question of edgeway status.
const fastPathTime = 5 * time.Second

// status is for edgeway status; nil: it is not enabled.
func (f *fastPath) status() *control.StatusFastPath {
	if !f.cfg.Enabled {
		return nil
	}
	out := &control.StatusFastPath{Missing: f.missing()}
	if out.Missing != "" || f.offloader == nil {
		return out
	}
	ctx, cancel := context.WithTimeout(context.Background(), fastPathTime)
	defer cancel()
	state, err := f.offloader.Offloading(ctx)
	if err != nil {
		out.Err = err.Error()
	}
	out.Add(state)
	return out
}

// of says for edgeway explain whether connections to a ServicePort leave the rules. ways are those to the client and to the
// endpoints.
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
		if !f.leads(w.Interface) {
			return fmt.Sprintf("no: the device %s is not one of fastpath.devices", w.Interface)
		}
	}
	if n := f.cfg.AfterPackets; n > 0 {
		return fmt.Sprintf("yes, after %d packets (fastpath.after_packets)", n)
	}
	return "yes, once it was answered"
}

// leads says that a device is one of the fast path's.
func (f *fastPath) leads(device string) bool {
	matches := func(pattern string) bool { return plan.MatchInterface(pattern, device) }
	return (len(f.cfg.Devices) == 0 || slices.ContainsFunc(f.cfg.Devices, matches)) && !slices.ContainsFunc(f.cfg.Exclude, matches)
}
