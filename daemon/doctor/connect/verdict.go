package connect

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"edgeway/daemon/doctor/finding"
	"edgeway/daemon/doctor/firewall"
	"edgeway/daemon/doctor/trace"
	"edgeway/daemon/text"
)

// findings says on which side the fault lies.
func (s *service) findings(ctx context.Context, traces *int, o Options) (out []finding.Finding) {
	dead, live := s.which(s.endpoints, false), s.which(s.endpoints, true)
	lost := s.which(s.frontends, false)
	say := func(level finding.Level, mend, format string, args ...any) {
		out = append(out, finding.New(Check, level, mend, format, args...))
	}
	switch {
	case len(dead) > 0 && len(live) == 0:
		say(finding.Problem, s.mendEndpoint(dead[0]), "no endpoint of %s can be used, also without the Service: %s. The fault lies there or on the way, not at the Service",
			s.Name, s.list(dead))
	case len(dead) > 0:
		say(finding.Problem, s.mendEndpoint(dead[0])+after(", or set ", o.Unchecked), "%d of %d endpoints of %s cannot be used, also without the Service: %s. That share of its connections fails",
			len(dead), len(s.endpoints), s.Name, s.list(dead))
	}
	if len(lost) > 0 && len(live) > 0 {
		mend := fmt.Sprintf("edgeway doctor --connect %s/%s --trace", s.Name.Namespace, s.Name.Name)
		say(finding.Problem, mend, "endpoints of %s answer (%s), but not by the Service: %s. The fault lies on this host: at its rules or routes",
			s.Name, live[0], s.list(lost))
	}
	if len(out) == 0 {
		say(finding.OK, "", "%s works: %s and, directly, %s answered", s.Name, text.Count(len(s.frontends), "frontend"),
			text.Count(len(s.endpoints), "endpoint"))
		return out
	}
	if !o.Trace {
		return out
	}
	for _, to := range append(lost, dead...) {
		if *traces == 0 || s.sent[to] == unreachable {
			continue
		}
		*traces--
		if found, ok := s.trace(ctx, to); ok {
			return append(out, found) // the others are most likely dropped by the same rule
		}
	}
	return out
}

// after puts a separator before a text that is not empty.
func after(separator, text string) string {
	if text == "" {
		return ""
	}
	return separator + text
}

// list says what became of connections, of the first few.
func (s *service) list(of []netip.AddrPort) string {
	const most = 3
	var out []string
	for _, to := range of[:min(most, len(of))] {
		out = append(out, fmt.Sprintf("%s %s", to, s.sent[to]))
	}
	if more := len(of) - most; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}

// mendEndpoint depends on how the endpoint fails.
func (s *service) mendEndpoint(to netip.AddrPort) string {
	switch s.sent[to] {
	case refused:
		return fmt.Sprintf("start the program at %s, or take it out of the EndpointSlices of %s/%s", to,
			s.Name.Namespace, s.Name.Name)
	case unreachable:
		return fmt.Sprintf("ip route get %s  # and add a route to the endpoints' network", to.Addr())
	}
	return fmt.Sprintf("edgeway doctor --connect %s/%s --trace  # then look at the network and at the firewall of %s",
		s.Name.Namespace, s.Name.Name, to.Addr())
}

// trace names the rule that decides about a connection; false: none does, as an endpoint refuses it.
func (s *service) trace(ctx context.Context, to netip.AddrPort) (f finding.Finding, found bool) {
	f = finding.Finding{Check: "trace", Level: finding.Problem}
	port, err := freePort(s.Name.Protocol)
	var v trace.Verdict
	if err == nil {
		flow := trace.Flow{Protocol: s.Name.Protocol, To: to, From: port}
		v, err = trace.Run(ctx, flow, func(ctx context.Context) { dial(ctx, s.Name.Protocol, to, port) })
	}
	what := fmt.Sprintf("the connection to %s of %s", to, s.Name)
	switch {
	case err != nil:
		f.Level, f.Seen = finding.Warning, fmt.Sprintf("%s could not be traced: %v", what, err)
		f.Mend = fmt.Sprintf("sudo edgeway doctor --connect %s/%s --trace", s.Name.Namespace, s.Name.Name)
	case !v.Dropped && s.sent[to] == refused:
		return f, false
	case !v.Dropped:
		f.Level, f.Mend = finding.Warning, fmt.Sprintf("ip route get %s", to.Addr())
		f.Seen = what + notDropped(v)
	default:
		if v.Reply {
			what = "the answer to " + what
		}
		d := firewall.Drop{
			Family: v.Family, Table: v.Table, Chain: v.Chain, Handle: v.Handle, Rule: v.Rule, Reply: v.Reply,
			Protocol: s.Name.Protocol, To: to, Direct: slices.Contains(s.endpoints, to) || !v.Reply && v.To == to,
		}
		f.Seen, f.Mend = fmt.Sprintf("%s drops %s", d, what), d.Fix()
	}
	return f, true
}

// notDropped says what that means.
func notDropped(v trace.Verdict) string {
	switch {
	case v.Answered:
		return " is dropped by no rule, and an answer came: try again"
	case v.Seen:
		return " is dropped by no rule of nftables: it leaves this host, and no answer comes. Look at the network, at the endpoint's firewall and its route back, and at iptables-legacy-save, whose rules are not traced"
	}
	return " meets no rule of nftables: the kernel finds no route for it"
}
