package control

import (
	"fmt"
	"io"
	"net/netip"
	"strings"
)

// WriteText prints the plan for a person: problems first.
func (v Plan) WriteText(w io.Writer) error {
	p := &printer{w: w}
	p.faults("problem", v.Problems)
	inForce := "in force"
	if !v.InForce {
		inForce = "not in force"
	}
	n := v.Node
	p.print("plan %d, %s; node %s; NodePorts at %s; pods: %s; Service CIDRs: %s\n", v.Generation, inForce, n.Name,
		list(n.NodePortAddrs, "no address"), list(append(texts(n.PodSources), n.PodInterfaces...), "not detected"),
		list(n.ServiceCIDRs, "unknown"))
	for _, s := range v.Services {
		s.write(p)
	}
	for _, h := range v.HealthChecks {
		p.print("\nhealthCheckNodePort %d of %s: %d local endpoints\n", h.Port, h.Service, h.LocalEndpoints)
	}
	return p.err
}

func (s PlanService) write(p *printer) {
	extra := ""
	if s.Affinity != "" {
		extra += ", affinity " + s.Affinity
	}
	if s.LongLived {
		extra += ", long-lived"
	}
	if s.Scheduler != "" {
		extra += ", scheduler " + s.Scheduler
	}
	p.print("\n%s %s%s\n", s.Name, s.Family, extra)
	for _, f := range s.Frontends {
		p.print("  %-14s %-21s %s\n", f.Kind, f.Address, f.routes())
		if f.AllowFrom != nil {
			p.print("  %-14s %-21s from %s only\n", "", "", list(*f.AllowFrom, "nowhere"))
		}
	}
	for _, e := range s.Endpoints {
		here := ""
		if e.Local {
			here = ", on this host"
		}
		if e.Weight != 0 {
			here += fmt.Sprintf(", weight %d", e.Weight)
		}
		p.print("  %-14s %-21s %s pool%s\n", "endpoint", e.Address, strings.Join(e.Pools, " and "), here)
	}
	if len(s.Endpoints) == 0 {
		p.print("  no endpoint\n")
	}
	for _, out := range s.Out {
		p.print("  %-14s %s\n", "dead", out)
	}
	for _, gap := range s.Gaps {
		p.print("  %-14s %s\n", "gap", gap)
	}
}

// routes groups the origins that have the same route; one route for all needs no origin.
func (f PlanFrontend) routes() string {
	if f.Pod == f.Host && f.Host == f.Outside {
		return f.Pod
	}
	var out []string
	add := func(who, what string) { out = append(out, who+": "+what) }
	switch {
	case f.Pod == f.Host:
		add("pod and host", f.Pod)
		add("outside", f.Outside)
	case f.Host == f.Outside:
		add("pod", f.Pod)
		add("host and outside", f.Host)
	case f.Pod == f.Outside:
		add("pod and outside", f.Pod)
		add("host", f.Host)
	default:
		add("pod", f.Pod)
		add("host", f.Host)
		add("outside", f.Outside)
	}
	return strings.Join(out, "; ")
}

// WriteText prints the verdict first, then why.
func (e Explanation) WriteText(w io.Writer) error {
	p := &printer{w: w}
	by := ""
	if e.Interface != "" {
		by = " via " + e.Interface
	}
	p.print("%s: %s\n", e.Verdict, e.Reason)
	if e.Fix != "" {
		p.line("fix", "%s", e.Fix)
	}
	for _, f := range e.Faults {
		p.line(f.Severity.String(), "%s: %s", f.ID, f)
		if f.Fix != "" {
			p.line("fix", "%s", f.Fix)
		}
	}
	if !e.InForce {
		p.print("(this plan is not in the kernel)\n")
	}
	p.line("from", "%s%s (%s)", e.Source, by, e.Origin)
	p.line("to", "%s/%s%s", e.Destination, e.Protocol, after(", ", e.Way))
	if e.Service != "" {
		p.line("Service", "%s", e.Service)
		p.line("frontend", "%s", e.Frontend)
	}
	if e.Affinity != "" {
		p.line("affinity", "the client keeps its endpoint for %s after its last new connection", e.Affinity)
	}
	for _, gap := range e.Gaps {
		p.line("gap", "%s", gap)
	}
	e.writeEndpoints(p)
	for _, out := range e.Out {
		p.line("dead", "%s", out)
	}
	e.pastRules(p)
	return p.err
}

// pastRules says what is not the rules' work.
func (e Explanation) pastRules(p *printer) {
	if e.Shortcut != "" {
		p.line("taken", "%s", e.Shortcut)
	}
	if e.FastPath != "" {
		p.line("fast path", "%s", e.FastPath)
	}
}

func (e Explanation) writeEndpoints(p *printer) {
	if e.Scheduler != "" {
		p.line("scheduler", "%s, of the virtual server %s", e.Scheduler, e.Server)
	}
	for _, ep := range e.Endpoints {
		sees := "sees the client's address"
		if ep.SNAT {
			sees = "sees this host's address (masquerade)"
		}
		if ep.Local {
			sees += ", on this host"
		}
		if e.Scheduler != "" {
			sees += fmt.Sprintf(", weight %d, %d active and %d inactive connections", ep.Weight, ep.Active, ep.Inactive)
		}
		p.line("endpoints", "%s %s%s", ep.Address, sees, after(", ", ep.Way))
	}
}

// after puts a separator before a text that is not empty.
func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

func texts(prefixes []netip.Prefix) []string {
	out := make([]string, 0, len(prefixes))
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return out
}

// list joins values, or gives what stands for none.
func list[T any](values []T, none string) string {
	if len(values) == 0 {
		return none
	}
	out := make([]string, 0, len(values))
	for _, v := range values {
		out = append(out, fmt.Sprint(v))
	}
	return strings.Join(out, ", ")
}
