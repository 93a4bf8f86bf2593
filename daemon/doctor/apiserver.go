package doctor

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"edgeway/daemon/source/kube"
	"edgeway/proxiers/fault"
)

func checkAPIServer(ctx context.Context, h *Host) []fault.Fault {
	if h.Contact == nil {
		return nil
	}
	c, err := h.Contact(ctx)
	why := c.Fault
	if err != nil {
		why = fault.New(kube.FaultID, fault.Warning, "edgeway config check", "%v", err)
	}
	var out []fault.Fault
	switch {
	case errors.Is(err, fs.ErrPermission):
		out = append(out, warning(RootFix, "cannot query the API server: %v", err))
	case why.Message != "" && h.Plan == nil:
		out = append(out, problem(why.Fix, "the API server is unusable, and Edgeway knows no Services: %s",
			why.Message))
	case why.Message != "":
		out = append(out, warning(why.Fix,
			"the API server is unusable, so Edgeway receives no changes: %s", why.Message))
	default:
		out = append(out, ok("the API server %s answers in %s", c.Server, c.Latency.Round(time.Millisecond)))
	}
	out = append(out, c.Faults...)
	if c.SkewKnown {
		out = append(out, kube.ClockFault(c.ClockSkew))
	}
	return out
}
