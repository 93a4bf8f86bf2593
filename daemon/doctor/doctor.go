// Package doctor finds out why connections to Services fail on this host although Edgeway's rules are correct.
//
// A Check inspects one aspect of the host and returns findings with their fixes. "edgeway doctor" runs all checks,
// whether or not a daemon is running. The daemon repeats the cheap checks (Monitor) and reports their findings as its
// own faults.
package doctor

import (
	"context"
	"slices"
	"time"

	"edgeway/daemon/doctor/firewall"
	"edgeway/proxiers/fault"
)

// Check inspects one aspect of the host.
type Check struct {
	// Name is the check's name, in kebab-case, and the default ID of its findings.
	Name string
	// Cheap reports whether the check takes only a few milliseconds and queries only the kernel.
	Cheap bool
	// Run returns the findings, or none if there is nothing to inspect. A finding may have an ID other than Name.
	Run func(context.Context, *Host) []fault.Fault
}

// Checks returns all checks. The manual page edgeway(8) describes each check.
func Checks() []Check {
	return []Check{
		{Name: "daemon", Run: checkDaemon},
		{Name: "backend", Run: checkBackend},
		{Name: "systemd", Run: checkDropIn},
		{Name: "ip-forward", Cheap: true, Run: checkForwarding4},
		{Name: "ipv6-forward", Cheap: true, Run: checkForwarding6},
		{Name: "route-services", Cheap: true, Run: checkServiceRoutes},
		{Name: "route-endpoints", Cheap: true, Run: checkEndpointRoutes},
		{Name: "rp-filter", Cheap: true, Run: checkRPFilter},
		{Name: firewall.FaultID, Cheap: true, Run: checkForeignRules},
		{Name: "conntrack", Cheap: true, Run: checkConntrack},
		{Name: "api-server", Run: checkAPIServer},
		{Name: "services", Run: checkServices},
	}
}

// CheapChecks returns the checks that the daemon itself runs.
func CheapChecks() []Check {
	return slices.DeleteFunc(Checks(), func(c Check) bool { return !c.Cheap })
}

// checkTime is the time limit for one check. After checkTime, a check stops waiting for information, such as a response
// from the API server, and treats the information as unavailable.
const checkTime = 20 * time.Second

// RunChecks runs the checks and returns their findings, worst first.
func RunChecks(ctx context.Context, h *Host, checks []Check) []fault.Fault {
	var all []fault.Fault
	for _, c := range checks {
		found, err := c.run(ctx, h)
		if err != nil {
			found = []fault.Fault{unknownFault(c, err)}
		}
		all = append(all, fault.Truncate(found)...)
	}
	fault.Sort(all)
	return all
}

// run runs the check. An error means that the check could not inspect the host and that the findings are meaningless.
func (c Check) run(ctx context.Context, h *Host) ([]fault.Fault, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	at, w := *h, &errorRecorder{System: h.System}
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
