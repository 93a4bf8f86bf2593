package doctor

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"edgeway/proxiers/fault"
)

// How much the clocks of this host and of the API server may differ. Tokens and certificates are valid from a moment
// on: new ones are refused by a clock that is late, and the expiry of all is judged wrongly.
const (
	skewTold   = 10 * time.Second
	skewBroken = 5 * time.Minute
)

func apiServer(ctx context.Context, h *Host) []fault.Fault {
	if h.Contact == nil {
		return nil
	}
	c, err := h.Contact(ctx)
	var out []fault.Fault
	switch {
	case errors.Is(err, fs.ErrPermission):
		out = append(out, warning(AsRoot, "the API server cannot be asked: %v", err))
	case err != nil && h.Plan == nil:
		out = append(out, problem(orElse(c.Fix, "edgeway config check"),
			"the API server cannot be used, and no Service is known: %v", err))
	case err != nil:
		out = append(out, warning(orElse(c.Fix, "edgeway config check"),
			"the API server cannot be used, changes do not arrive: %v", err))
	default:
		out = append(out, ok("the API server %s answers in %s", c.Server, c.Took.Round(time.Millisecond)))
	}
	const clock, fix = "clock", "timedatectl set-ntp true"
	skew, word := c.Ahead, "ahead of"
	if skew < 0 {
		skew, word = -skew, "behind"
	}
	var f fault.Fault
	switch {
	case !c.Dated:
		return out
	case skew > skewBroken:
		f = problem(fix, "the clock of this host is %s %s that of the API server: credentials are judged wrongly",
			skew.Round(time.Second), word)
	case skew > skewTold:
		f = warning(fix, "the clock of this host is %s %s that of the API server", skew.Round(time.Second), word)
	default:
		f = ok("the clock of this host agrees with that of the API server")
	}
	f.ID = clock
	return append(out, f)
}
