package doctor

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"edgeway/daemon/source/kube"
	"edgeway/proxiers/fault"
)

func apiServer(ctx context.Context, h *Host) []fault.Fault {
	if h.Contact == nil {
		return nil
	}
	c, err := h.Contact(ctx)
	var out []fault.Fault
	switch {
	case errors.Is(err, fs.ErrPermission):
		out = append(out, warning(AsRoot, "cannot query the API server: %v", err))
	case err != nil && h.Plan == nil:
		out = append(out, problem(orElse(c.Fix, "edgeway config check"),
			"the API server is not usable, and no Service is known: %v", err))
	case err != nil:
		out = append(out, warning(orElse(c.Fix, "edgeway config check"),
			"the API server is not usable, so changes do not arrive: %v", err))
	default:
		out = append(out, ok("the API server %s answers in %s", c.Server, c.Took.Round(time.Millisecond)))
	}
	out = append(out, c.Faults...)
	if c.Dated {
		out = append(out, kube.ClockFault(c.Ahead))
	}
	return out
}
