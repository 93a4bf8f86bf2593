// Package doctor looks at this host for what keeps connections to Services from working although the rules are right.
//
// A Check looks at one thing and gives findings: what was seen, and what mends it. "edgeway doctor" runs all of them,
// beside a daemon or without one. The daemon runs the cheap ones itself, again and again (Rounds): what they find are
// its conditions.
package doctor

import (
	"context"
	"slices"
	"time"

	"edgeway/daemon/doctor/firewall"
	"edgeway/proxiers/fault"
)

// Check looks at one thing.
type Check struct {
	// Name is that of its findings, and of the daemon's condition, in kebab-case.
	Name string
	// Cheap says that it takes some milliseconds and asks nobody but the kernel.
	Cheap bool
	// Run gives no finding where there is nothing to look at. A finding may have a name of its own.
	Run func(context.Context, *Host) []fault.Fault
}

// Checks lists all; edgeway(8) says what each looks at.
func Checks() []Check {
	return []Check{
		{Name: "daemon", Run: daemon},
		{Name: "backend", Run: backend},
		{Name: "systemd", Run: dropIn},
		{Name: "ip-forward", Cheap: true, Run: forwarding4},
		{Name: "ipv6-forward", Cheap: true, Run: forwarding6},
		{Name: "route-services", Cheap: true, Run: serviceRoutes},
		{Name: "route-endpoints", Cheap: true, Run: endpointRoutes},
		{Name: "rp-filter", Cheap: true, Run: rpFilter},
		{Name: firewall.Check, Cheap: true, Run: foreignRules},
		{Name: "conntrack", Cheap: true, Run: conntrack},
		{Name: "api-server", Run: apiServer},
		{Name: "services", Run: services},
	}
}

// Cheap lists those that the daemon runs itself.
func Cheap() []Check {
	return slices.DeleteFunc(Checks(), func(c Check) bool { return !c.Cheap })
}

// checkTime bounds one check: what it has not found by then, as an answer of the API server, counts as missing.
const checkTime = 20 * time.Second

// Look runs the checks and gives their findings, the worst first.
func Look(ctx context.Context, h *Host, checks []Check) []fault.Fault {
	var all []fault.Fault
	for _, c := range checks {
		found, err := c.look(ctx, h)
		if err != nil {
			found = []fault.Fault{unknown(c, err)}
		}
		all = append(all, fault.Bounded(found)...)
	}
	fault.Sort(all)
	return all
}

// look runs the check. The error is why it could not look, and then what it found means nothing.
func (c Check) look(ctx context.Context, h *Host) ([]fault.Fault, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	at, w := *h, &watched{System: h.System}
	at.System = w
	found := c.Run(ctx, &at)
	for i := range found {
		if found[i].ID == "" {
			found[i].ID = c.Name
		}
	}
	return found, w.err
}

func ok(format string, args ...any) fault.Fault {
	return fault.New("", fault.OK, "", format, args...)
}

func warning(fix, format string, args ...any) fault.Fault {
	return fault.New("", fault.Warning, fix, format, args...)
}

func problem(fix, format string, args ...any) fault.Fault {
	return fault.New("", fault.Problem, fix, format, args...)
}
