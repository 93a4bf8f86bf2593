package control

import (
	"fmt"
	"strings"

	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// Print prints the verdict, followed by the reasons.
func (e Explanation) Print(p *text.Screen) {
	p.PrintVerdict(e.severity(), e.Verdict+":", e.Reason)
	p.PrintFix(e.Fix)
	for _, f := range e.Faults {
		p.PrintFault(f, f.String())
	}
	if !e.InForce {
		p.PrintRow("plan", "not in the kernel yet")
	}
	p.PrintRow("from", "%s%s (%s)", e.Source, text.WithPrefix(" via ", e.Interface), e.Origin)
	p.PrintRow("to", "%s/%s%s", e.Destination, e.Protocol, text.WithPrefix(", ", e.NextHop))
	rows(p, "Service", e.Service)
	rows(p, "frontend", e.Frontend)
	if e.AffinityTimeout != "" {
		p.PrintRow("affinity", "the client keeps its endpoint for %s after its last new connection", e.AffinityTimeout)
	}
	rows(p, "gap", e.Gaps...)
	if e.Scheduler != "" {
		p.PrintRow("scheduler", "%s, of the virtual server %s", e.Scheduler, e.Server)
	}
	for _, ep := range e.Endpoints {
		p.PrintRow("endpoints", "%s", ep.text(e.Scheduler != ""))
	}
	rows(p, "dead", e.DeadEndpoints...)
	rows(p, "taken", e.Shortcut)
	rows(p, "fast path", e.FastPath)
}

func (e Explanation) severity() fault.Severity {
	switch e.Verdict {
	case plan.Forward.String():
		return fault.OK
	case plan.Pass.String():
		return fault.Notice
	}
	return fault.Problem
}

func (ep ExplainedEndpoint) text(scheduled bool) string {
	out := ep.Address + " sees the client's address"
	if ep.SNAT {
		out = ep.Address + " sees this host's address (masquerade)"
	}
	if ep.Local {
		out += ", on this host"
	}
	if scheduled {
		out += fmt.Sprintf(", weight %d, %d active and %d inactive connections", ep.Weight, ep.Active, ep.Inactive)
	}
	return out + text.WithPrefix(", ", ep.NextHop)
}

func rows(p *text.Screen, heading string, texts ...string) {
	for _, t := range texts {
		if t != "" {
			p.PrintRow(heading, "%s", t)
		}
	}
}

// join returns the values separated by commas, or the parameter none if there are no values.
func join[T any](values []T, none string) string {
	if len(values) == 0 {
		return none
	}
	out := make([]string, 0, len(values))
	for _, v := range values {
		out = append(out, fmt.Sprint(v))
	}
	return strings.Join(out, ", ")
}
