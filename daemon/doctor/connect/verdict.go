package connect

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"edgeway/daemon/doctor/firewall"
	"edgeway/daemon/doctor/trace"
	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
)

// diagnosis is a fault with the destinations that it affects.
type diagnosis struct {
	fault.Fault
	destinations []netip.AddrPort
}

// findings returns faults that identify either the endpoints or this host as the cause of failed connections. If the
// trace found the rule that drops a connection, the fault from the trace replaces the diagnosis of that connection.
func (s *service) findings(ctx context.Context, traces *int, o Options) (out []fault.Fault) {
	claims := s.diagnose(o)
	if len(claims) == 0 {
		return []fault.Fault{fault.New(FaultID, fault.OK, "", "%s works: %s answered, and %s answered directly", s.Name,
			text.Count(len(s.frontends), "frontend"), text.Count(len(s.filter(s.endpoints, true)), "endpoint"))}
	}
	var traced fault.Fault
	var at netip.AddrPort
	if o.Trace {
		traced, at = s.traceOne(ctx, traces)
	}
	for _, c := range claims {
		switch explained := slices.Contains(c.destinations, at); {
		case explained && traced.Severity == fault.Problem:
			continue
		case explained:
			c.Fix = traced.Fix
		}
		out = append(out, c.Fault)
	}
	if at.IsValid() {
		out = append(out, traced)
	}
	return out
}

// diagnose derives the faults from the connection outcomes alone, without a trace. If the Service works, its endpoints
// do not have to respond to direct connections, because a rule may accept only translated connections.
func (s *service) diagnose(o Options) (out []diagnosis) {
	dead, live, lost := s.filter(s.endpoints, false), s.filter(s.endpoints, true), s.filter(s.frontends, false)
	say := func(about []netip.AddrPort, fix, format string, args ...any) {
		out = append(out, diagnosis{fault.New(FaultID, fault.Problem, fix, format, args...), about})
	}
	switch {
	case len(live) == 0 && len(lost) > 0:
		say(append(lost, dead...), s.endpointFix(dead[0], o),
			"this host cannot connect to any endpoint of %s, even directly: %s", s.Name, s.formatList(dead))
		return out
	case len(live) > 0 && len(dead) > 0:
		say(dead, s.endpointFix(dead[0], o)+text.WithPrefix(", or set ", o.ChecksSetting),
			"this host cannot connect to %d of %s of %s, even directly: %s", len(dead),
			text.Count(len(s.endpoints), "endpoint"), s.Name, s.formatList(dead))
	}
	if len(live) > 0 && len(lost) > 0 {
		say(lost, s.traceCommand(), "endpoints of %s answer directly (%s), but not through the Service: %s. "+
			"The cause is in this host's rules or routing table", s.Name, live[0], s.formatList(lost))
	}
	return out
}

// traceCommand returns the command that traces the Service's connections.
func (s *service) traceCommand() string {
	return fmt.Sprintf("edgeway doctor --connect %s/%s --trace", s.Name.Namespace, s.Name.Name)
}

// traceOne traces the failed connections one at a time until a trace finds a fault, and returns that fault and the
// connection's destination. The same rule probably drops the other connections, too.
func (s *service) traceOne(ctx context.Context, traces *int) (fault.Fault, netip.AddrPort) {
	for _, to := range append(s.filter(s.frontends, false), s.filter(s.endpoints, false)...) {
		if *traces == 0 || !hasRoute(to) {
			continue
		}
		*traces--
		if f, found := s.trace(ctx, to); found {
			return f, to
		}
	}
	return fault.Fault{}, netip.AddrPort{}
}

// formatList formats the first few destinations with their outcomes, followed by the number of remaining destinations.
func (s *service) formatList(of []netip.AddrPort) string {
	const most = 3
	var out []string
	for _, to := range of[:min(most, len(of))] {
		out = append(out, fmt.Sprintf("%s %s", to, s.outcomes[to]))
	}
	if more := len(of) - most; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	return strings.Join(out, ", ")
}

// endpointFix returns the fix for an endpoint, depending on how the connection to it failed.
func (s *service) endpointFix(to netip.AddrPort, o Options) string {
	switch got := s.outcomes[to]; {
	case got == refused && o.Trace:
		return fmt.Sprintf("start the program at %s, or remove the endpoint from the EndpointSlices of "+
			"%s/%s", to,
			s.Name.Namespace, s.Name.Name)
	case got == refused:
		return fmt.Sprintf("%s  # if no rule on this host refuses the connections, start the program at %s",
			s.traceCommand(), to)
	case got == unreachable && !hasRoute(to):
		return fmt.Sprintf("ip route get %s  # then add a route to the endpoints' network", to.Addr())
	}
	return s.traceCommand()
}

func hasRoute(to netip.AddrPort) bool {
	_, err := nodeinfo.LookupRoute(to.Addr())
	return err == nil
}

// trace traces a connection and returns a fault that describes what happened to its packets. found is false if no
// program is listening at the endpoint.
func (s *service) trace(ctx context.Context, to netip.AddrPort) (f fault.Fault, found bool) {
	port, err := freePort(s.Name.Protocol)
	var v trace.Verdict
	got := s.outcomes[to]
	if err == nil {
		flow := trace.Flow{Protocol: s.Name.Protocol, Destination: to, SourcePort: port}
		v, err = trace.Run(ctx, flow, func(ctx context.Context) { got = dial(ctx, s.Name.Protocol, to, port) })
	}
	what := fmt.Sprintf("the connection to %s of %s", to, s.Name)
	switch {
	case err != nil:
		return fault.New("trace", fault.Warning, "sudo "+s.traceCommand(), "cannot trace %s: %v", what, err), true
	case v.Dropped:
		return s.dropFault(v, to, what), true
	case got == refused && v.LeftHost && v.Answered:
		return f, false
	}
	message, fix := s.explainPass(v, got)
	return fault.New("trace", fault.Warning, fix, "%s%s", what, message), true
}

// dropFault returns the fault for a rule that drops a connection's packets or its reply packets.
func (s *service) dropFault(v trace.Verdict, to netip.AddrPort, what string) fault.Fault {
	if v.Reply {
		what = "the answer to " + what
	}
	d := firewall.Drop{
		Family: v.Family, Table: v.Table, Chain: v.Chain, Handle: v.Handle, Rule: v.Rule, Reply: v.Reply,
		Protocol: s.Name.Protocol, Destination: to,
		Direct: slices.Contains(s.endpoints, to) || !v.Reply && v.Destination == to,
	}
	return fault.New("trace", fault.Problem, d.Fix(), "%s drops %s", d, what)
}

// explainPass explains why a connection fails although no nftables rule drops its packets.
func (s *service) explainPass(v trace.Verdict, got outcome) (message, fix string) {
	to := v.Destination.Addr()
	hop, err := nodeinfo.LookupRoute(to)
	switch {
	case !v.Traced:
		return " reaches no nftables rule: something, such as a BPF program, drops the packets earlier",
			"bpftool cgroup tree"
	case got == answers:
		return " now succeeds", s.traceCommand() + "  # again"
	case !v.LeftHost, v.Answered:
		return " or the reply is lost on this host, but no nftables rule drops the packets: the kernel " +
				"cannot trace iptables-legacy rules or the reverse path filter",
			"iptables-legacy-save; nstat -asz TcpExtIPReversePathFilter  # shows the rules and counts dropped packets"
	case err != nil:
		return fmt.Sprintf(": there is no route to the endpoint %s", to), "ip route get " + to.String()
	case got == refused || got == unreachable:
		return fmt.Sprintf(" leaves this host for %s (%s), and a firewall at the endpoint or on the "+
				"path refuses the connection", to, hop),
			"ip route get " + to.String()
	case hop.Default:
		return fmt.Sprintf(" leaves this host for %s on the default route (%s), but nothing answers: "+
				"the router may have no route to the endpoint", to, hop),
			"ip route get " + to.String() + "  # then check the route at the router"
	}
	return fmt.Sprintf(" leaves this host for %s (%s), but nothing answers: check the network, the "+
		"endpoint's firewall, and the endpoint's route back to this host", to, hop), "ip route get " + to.String()
}
