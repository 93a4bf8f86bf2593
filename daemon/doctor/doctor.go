// Package doctor looks at this host for what keeps connections to Services from working although the rules are right.
//
// A Check looks at one thing and gives findings: what was seen, and what mends it. "edgeway doctor" runs all of them, beside a
// daemon or without one. The daemon runs the cheap ones itself, again and again (Rounds): what they find are its conditions.
package doctor

import (
	"context"
	"fmt"
	"slices"
	"time"

	"edgeway/daemon/doctor/finding"
	"edgeway/daemon/doctor/firewall"
)

// Check looks at one thing.
type Check struct {
	// Name is that of its findings, and of the daemon's condition, in kebab-case.
	Name string
	// Doc says in a few words what it looks at.
	Doc string
	// Cheap says that it takes some milliseconds and asks nobody but the kernel.
	Cheap bool
	// Run gives no finding where there is nothing to look at. A finding may have a name of its own.
	Run func(context.Context, *Host) []finding.Finding
}

// Checks lists all.
func Checks() []Check {
	return []Check{
		{Name: "daemon", Doc: "the daemon runs, and is healthy", Run: daemon},
		{Name: "backend", Doc: "the kernel and the programs are what the configured backend needs", Run: backend},
		{Name: "systemd", Doc: "the unit has the drop-in that the backend needs", Run: dropIn},
		{Name: "ip-forward", Doc: "the kernel forwards IPv4 packets where the plan needs it", Cheap: true, Run: forwarding4},
		{Name: "ipv6-forward", Doc: "the same for IPv6", Cheap: true, Run: forwarding6},
		{Name: "route-services", Doc: "there is a route to each range and address of Services, with a usable source", Cheap: true, Run: serviceRoutes},
		{Name: "route-endpoints", Doc: "there is a route to the networks of the endpoints", Cheap: true, Run: endpointRoutes},
		{Name: "rp-filter", Doc: "the reverse path filter drops nothing", Run: rpFilter},
		{Name: firewall.Check, Doc: "no rule of another program drops connections of Services", Cheap: true, Run: foreignRules},
		{Name: "conntrack", Doc: "the table of connections has room", Cheap: true, Run: conntrack},
		{Name: "sysctls", Doc: "other settings of the kernel", Run: sysctls},
		{Name: "ports", Doc: "no program has the port of a NodePort or of a health check", Run: ports},
		{Name: "api-server", Doc: "the API server answers, and the clocks agree", Run: apiServer},
		{Name: "credentials", Doc: "the credentials are secure and do not expire soon", Run: credentials},
		{Name: "sources", Doc: "all sources have been read whole", Run: sources},
		{Name: "last-known", Doc: "the last-known state can be read, and is not old", Run: lastKnown},
		{Name: "services", Doc: "each Service has endpoints, and each EndpointSlice a Service", Run: services},
	}
}

// Cheap lists those that the daemon runs itself.
func Cheap() []Check {
	return slices.DeleteFunc(Checks(), func(c Check) bool { return !c.Cheap })
}

// checkTime bounds one check: what it has not found by then, as an answer of the API server, counts as missing.
const checkTime = 20 * time.Second

// Look runs the checks and gives their findings, the worst first.
func Look(ctx context.Context, h *Host, checks []Check) []finding.Finding {
	var all []finding.Finding
	for _, c := range checks {
		all = append(all, c.look(ctx, h)...)
	}
	return sorted(all)
}

func (c Check) look(ctx context.Context, h *Host) []finding.Finding {
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	found := c.Run(ctx, h)
	for i := range found {
		if found[i].Check == "" {
			found[i].Check = c.Name
		}
	}
	return found
}

func sorted(all []finding.Finding) []finding.Finding {
	rank := map[finding.Level]int{finding.Problem: 0, finding.Warning: 1, finding.OK: 2}
	slices.SortStableFunc(all, func(a, b finding.Finding) int { return rank[a.Level] - rank[b.Level] })
	return all
}

func ok(format string, args ...any) finding.Finding {
	return finding.Finding{Level: finding.OK, Seen: fmt.Sprintf(format, args...)}
}

func warning(mend, format string, args ...any) finding.Finding {
	return finding.Finding{Level: finding.Warning, Seen: fmt.Sprintf(format, args...), Mend: mend}
}

func problem(mend, format string, args ...any) finding.Finding {
	return finding.Finding{Level: finding.Problem, Seen: fmt.Sprintf(format, args...), Mend: mend}
}
