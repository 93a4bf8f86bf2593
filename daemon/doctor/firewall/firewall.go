// Package firewall finds other programs' rules that drop connections to Services.
//
// In nftables, a packet passes a hook only if every base chain of that hook accepts it, so an accept verdict in
// Edgeway's table does not override a drop verdict in another program's table. For each base chain in another program's
// table, the check determines the chain's verdict on connections to the plan's Services and health checks, and on their
// reply packets. The check understands verdicts, jumps and a few conditions, including the conditions in the rules that
// it suggests. The check assumes that any other condition may or may not match. The check has three outcomes:
//
//   - If the chain accepts the connections, the finding is ok.
//   - If the policy or an unconditional rule drops the connections, and no earlier rule can accept a new connection,
//     the finding is a problem with the command that inserts a rule.
//   - If an earlier rule may accept the connections, the finding is a notice with the command that traces a connection.
//
// The check ignores a rule that drops only some of the packets, because an operator probably wrote such a rule on
// purpose.
package firewall

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"
	"weak"

	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// FaultID is the ID of the faults that this package reports.
const FaultID = "firewall"

// Checker finds other programs' rules that drop connections to Services. A Checker rereads the nftables tables only
// after they have changed. A Checker is not safe for concurrent use.
type Checker struct {
	reader reader
	// needs lists the kinds of packets that the rules must accept for the Services and health checks in the plan.
	plan  weak.Pointer[plan.Plan]
	needs []need
	// links holds the interfaces that lead to endpoints, or nil if they are not known yet.
	links []string
}

// New returns a Checker for the network namespace of the calling thread.
func New() *Checker { return &Checker{reader: reader{nextAttempts: map[tableID]time.Time{}}} }

// Requirements lists the connections that the rules must accept.
type Requirements struct {
	Plan *plan.Plan
	// ForwardedFrontends describes at most one frontend whose connections this host forwards. The first result
	// describes a frontend that clients can reach only through this host. If there is none, the second result describes
	// a frontend that other hosts may reach with this host as their router.
	ForwardedFrontends func(plan.Family) (needed, useful string)
	// Links returns the interfaces that lead to endpoints on other hosts.
	Links func() []string
}

// Findings returns a finding for each rule or policy that drops, or may drop, connections to the plan's Services.
func (c *Checker) Findings(ctx context.Context, q Requirements) (out []fault.Fault) {
	ctx, cancel := context.WithTimeout(ctx, timeBound)
	defer cancel()
	c.links = nil
	bases := 0
	var hits []blocker
	for _, t := range c.reader.read(ctx) {
		if t.err != nil {
			out = append(out, unread(t))
		}
		if fix := t.kubeProxyFix(); fix != "" {
			out = append(out, fault.New(FaultID, fault.Problem, fix,
				"kube-proxy has rules on this host %s, and these rules translate connections to Services before "+
					"Edgeway's rules do", t))
		}
		for _, base := range t.bases {
			hits = c.appendBlockers(base, q, hits)
		}
		bases += len(t.bases)
	}
	slices.SortStableFunc(hits, func(a, b blocker) int { return b.weight() - a.weight() })
	for _, h := range hits[:min(len(hits), maxFindings)] {
		out = append(out, h.finding())
	}
	if len(out) == 0 {
		out = append(out, fault.New(FaultID, fault.OK, "", "no rule of another program drops connections to "+
			"Services (%s checked)",
			text.Count(bases, "base chain")))
	}
	return out
}

// maxFindings limits the number of findings, because the daemon reports each finding as a fault. The other findings
// appear after the operator has fixed the first ones.
const maxFindings = 20

func unread(t *table) fault.Fault {
	which := fmt.Sprintf("the %s table %s", t.family, t.name)
	if t.name == "" {
		which = "a table of nftables"
	}
	return fault.New(FaultID, fault.Warning, t.list(), "cannot determine whether %s drops connections to Services: %v",
		which, t.err)
}

// need describes packets that the base chains of some hooks must accept.
type need struct {
	what   string
	family plan.Family
	hooks  []string
	// service is an example Service for the trace command.
	service plan.ServicePortName
	// reply reports whether the packets are replies.
	reply bool
	// optional reports whether only clients that use this host as a router need these packets.
	optional bool
	// leaves reports whether the packets leave through an interface that leads to endpoints.
	leaves bool
	// port is the port of a health check, or 0 if the packets belong to no health check. Edgeway does not translate
	// connections to health checks.
	port uint16
	// clients identifies the clients that need these packets.
	clients fault.Clients
}

func needsOf(q Requirements) (needs []need) {
	in, out := []string{"prerouting", "input"}, []string{"output", "postrouting"}
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		local, remote := examplePorts(q.Plan, f)
		add := func(n need, of *plan.ServicePort, first, back []string) {
			n.family, n.service, n.hooks = f, of.Name, first
			needs = append(needs, n)
			n.what, n.reply, n.leaves, n.hooks = "the answers to "+n.what, true, false, back
			needs = append(needs, n)
		}
		if remote != nil {
			add(need{
				what: "connections from this host to Services", leaves: true, clients: fault.Host,
			}, remote, out, in)
			if needed, useful := q.ForwardedFrontends(f); needed+useful != "" {
				through := []string{"prerouting", "forward", "postrouting"}
				add(need{
					what:     "forwarded connections, such as those to " + needed + useful,
					optional: needed == "", leaves: true,
					clients: fault.Forwarded,
				}, remote, through, through)
			}
		}
		if local != nil {
			add(need{
				what:    "connections to endpoints on this host, such as the endpoints of " + local.Name.String(),
				clients: fault.Others,
			}, local, in, out)
		}
		if of := cmp.Or(local, remote); of != nil {
			for _, h := range q.Plan.HealthChecks[:min(len(q.Plan.HealthChecks), maxFindings)] {
				check := fmt.Sprintf("connections to the health check of %s/%s", h.Namespace, h.Name)
				add(need{what: check, port: h.Port}, of, in, out)
			}
		}
	}
	return needs
}

// examplePorts returns a ServicePort with an endpoint on this host (local), and a ServicePort with an endpoint on
// another host (remote). Both ServicePorts belong to address family f. A result is nil if the plan contains no matching
// ServicePort.
func examplePorts(p *plan.Plan, f plan.Family) (local, remote *plan.ServicePort) {
	for _, svc := range p.Services {
		for _, pool := range svc.Pools {
			for _, e := range pool {
				_, owned := slices.BinarySearchFunc(p.Node.HostAddrs, e.Addr.Addr(), netip.Addr.Compare)
				if svc.Family != f {
					break
				} else if owned {
					local = svc
				} else {
					remote = svc
				}
			}
		}
		if local != nil && remote != nil {
			break
		}
	}
	return local, remote
}

// blocker is a rule or policy that drops, or may drop, the packets that a need describes.
type blocker struct {
	at   ruleRef
	need *need
	may  bool
	// links holds the interfaces that lead to endpoints.
	links []string
}

// appendBlockers adds to hits a blocker for each need whose packets the base chain drops. If the same rule or policy
// drops the packets of several needs, appendBlockers keeps only the blocker with the greatest weight, but it keeps a
// separate blocker for each health check.
func (c *Checker) appendBlockers(base *chain, q Requirements, hits []blocker) []blocker {
	if of := weak.Make(q.Plan); of != c.plan {
		c.plan, c.needs = of, needsOf(q)
	}
	for i := range c.needs {
		n := &c.needs[i]
		of := base.table.family
		if of != "inet" && of != families[n.family] || !slices.Contains(n.hooks, base.hook) {
			continue
		}
		if c.links == nil {
			c.links = q.Links()
		}
		f := followChain(base, n, c.links)
		if f.verdict != drop {
			continue
		}
		h := blocker{at: f.droppedBy, need: n, may: f.mayAccept || base.precedesNAT(), links: c.links}
		same := func(o blocker) bool { return o.at == h.at && o.need.port == n.port }
		if i := slices.IndexFunc(hits, same); i < 0 {
			hits = append(hits, h)
		} else if h.weight() > hits[i].weight() {
			hits[i] = h
		}
	}
	return hits
}

// precedesNAT reports whether the chain runs before destination NAT (priority -100). Before destination NAT, no single
// condition matches the connections to all Services.
func (c *chain) precedesNAT() bool {
	return c.priority <= -100 && (c.hook == "prerouting" || c.hook == "output")
}

// weight ranks a blocker. Only blockers with weight 2 are problems.
func (h *blocker) weight() int {
	switch {
	case h.may:
		return 0
	case h.need.optional:
		return 1
	}
	return 2
}

func (h *blocker) finding() fault.Fault {
	switch h.weight() {
	case 0:
		fix := fmt.Sprintf("edgeway doctor --connect %s/%s --trace", h.need.service.Namespace, h.need.service.Name)
		return fault.New(FaultID, fault.Notice, fix, "%s may drop %s", h.at, h.need.what)
	case 1:
		return fault.New(FaultID, fault.Warning, h.fix(), "%s drops %s", h.at, h.need.what)
	}
	return fault.New(FaultID, fault.Problem, h.fix(), "%s drops %s", h.at, h.need.what).WithScope(h.need.scope())
}

// scope returns the scope of the Service connections to which the need applies. A connection to a health check is not a
// Service connection.
func (n *need) scope() fault.Scope {
	s := fault.Scope{Clients: n.clients, To: plan.AllAddresses(n.family)}
	if n.port != 0 {
		s.Clients = fault.NoClients
	}
	return s
}
