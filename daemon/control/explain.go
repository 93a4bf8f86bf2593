package control

import (
	"fmt"
	"net/netip"
	"slices"

	"edgeway/daemon/nodeinfo"
	"edgeway/daemon/pipeline"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// Explanation describes what happens to a new connection and why.
type Explanation struct {
	// InForce reports whether Edgeway has applied the plan on which the explanation is based.
	InForce     bool   `json:"inForce"`
	Source      string `json:"source"`
	Interface   string `json:"interface,omitempty"`
	Destination string `json:"destination"`
	Protocol    string `json:"protocol"`
	// Origin is "pod", "host" or "outside". Verdict is "forward", "reject", "drop", "pass", "unreachable" or "fail".
	// "unreachable" means that the kernel has no route to the destination or to any endpoint. "fail" means that the
	// rules forward the connection, but one of the Faults breaks it.
	Origin  string `json:"origin"`
	Verdict string `json:"verdict"`
	Reason  string `json:"reason"`
	// Fix is the command or the setting that solves the problem. Fix is "" if there is no problem or no known fix.
	Fix string `json:"fix,omitempty"`
	// NextHop is the next hop on the kernel's route from this host to the destination, or "" if another host sends the
	// packet.
	NextHop string `json:"nextHop,omitempty"`
	// Service and Frontend are "" if no Service owns the destination.
	Service  string `json:"service,omitempty"`
	Frontend string `json:"frontend,omitempty"`
	// AffinityTimeout is the timeout of the Service's session affinity.
	AffinityTimeout string              `json:"affinity,omitempty"`
	Endpoints       []ExplainedEndpoint `json:"endpoints,omitempty"`
	// Faults holds the faults of the Services that own or request the destination. If the rules forward the
	// connection, Faults also holds the daemon's faults that break the connection.
	Faults []fault.Fault `json:"faults,omitempty"`
	// DeadEndpoints describes the failure of each dead endpoint of the Service. A dead endpoint belongs to no pool
	// while another endpoint of the Service responds.
	DeadEndpoints []string `json:"out,omitempty"`
	// Gaps contains a sentence for each feature that the backend or a follower does not implement as the plan
	// specifies.
	Gaps []string `json:"gaps,omitempty"`
	// Scheduler names the scheduler that chooses the endpoint, and Server identifies the scheduler's virtual server.
	// Scheduler and Server are "" if the backend has no scheduler.
	Scheduler string `json:"scheduler,omitempty"`
	Server    string `json:"server,omitempty"`
	// FastPath is "yes" or "no" with the reason, or "" if there is nothing to report, for example because the fast path
	// is disabled and the Service has not opted in.
	FastPath string `json:"fastPath,omitempty"`
	// Shortcut states whether the backend's BPF programs (the shortcut) or its nftables rules translate the
	// connection's addresses, and why. Shortcut is "" if the backend has no such programs.
	Shortcut string `json:"shortcut,omitempty"`
}

// ExplainedEndpoint is an endpoint that may receive the connection.
type ExplainedEndpoint struct {
	Address string `json:"address"`
	Local   bool   `json:"local,omitempty"`
	// SNAT reports whether this host's address replaces the client's address in the connection to the endpoint.
	SNAT bool `json:"snat"`
	// NextHop is the next hop on the kernel's route to the endpoint, or "no route to …".
	NextHop               string `json:"nextHop"`
	proxiers.EndpointLoad        // Chosen holds the endpoint's weight and connections on Server
}

// IsForwarded reports whether this host forwards the connection to an endpoint.
func (e Explanation) IsForwarded() bool { return e.Verdict == plan.Forward.String() }

// AddFault adds a fault that prevents the connection from reaching an endpoint.
func (e *Explanation) AddFault(f fault.Fault) { e.Verdict, e.Faults = fails, append(e.Faults, f) }

const (
	unreachable = "unreachable" // the kernel has no route
	fails       = "fail"        // a fault of the daemon or the host breaks the connection
)

// Explainer holds the state that the daemon uses to explain connections.
type Explainer struct {
	State pipeline.State
	Lookups
}

// Lookups holds the functions that the daemon uses to explain connections. No function in Lookups may be nil.
type Lookups struct {
	// Gaps lists, for a ServicePort, the features that the backend or a follower does not implement as the plan
	// specifies.
	Gaps func(*plan.ServicePort) []proxiers.Gap
	// NextHop returns the next hop on the kernel's route to an address. See nodeinfo.LookupRoute.
	NextHop func(netip.Addr) (nodeinfo.NextHop, error)
	// DescribeDead describes the failure of each dead endpoint of a ServicePort.
	DescribeDead func(*plan.ServicePort) []string
	FastPath     FastPath
	// Faults returns the daemon's faults.
	Faults func() []fault.Fault
	// Path returns the scheduler and the shortcut that the backend uses for a connection. See proxiers.Explainer.
	Path func(d plan.Decision, bound bool) (proxiers.Path, error)
}

// Explain reports how Edgeway handles a connection. src is "host" or an address. The address may have the suffix
// "@INTERFACE" if Edgeway detects pods by their interface. dst is "ADDR:PORT", "localhost:PORT" or
// "NAMESPACE/NAME[:PORT]", and may end in "/PROTOCOL". proto is "tcp", "udp", "sctp", or "" for TCP.
func (s *Explainer) Explain(src, dst, proto string) (Explanation, error) {
	p, current, err := currentPlan(&s.State)
	if err != nil {
		return Explanation{}, err
	}
	q, err := s.parseQuestion(p, src, dst, proto)
	if err != nil {
		return Explanation{}, err
	}
	d := p.Decide(q.packet)
	e := q.explanation(d)
	e.InForce = current
	e.Faults = s.objectFaults(q.packet.Dst, d.Service)
	if d.Service != nil {
		for _, gap := range s.Gaps(d.Service) {
			e.Gaps = append(e.Gaps, gap.Feature+": "+gap.Reason)
		}
		e.DeadEndpoints = s.DescribeDead(d.Service)
	}
	if q.routeErr != nil {
		e.Verdict, e.Reason, e.Fix = unreachable, q.routeErr.Error(), fixNoRoute(d)
		if src == "host" {
			e.Source = src // the kernel chose no source address
		}
		return e, nil
	}
	s.addCause(p, &e, d, q.packet.Dst.Addr())
	s.addEndpoints(&e, d, q.packet.Src)
	s.addPath(&e, d, q, src != "host")
	e.FastPath = s.fastPath(d, q.packet.Src)
	s.addFaults(&e, d, q.packet.Dst.Addr())
	return e, nil
}

// addFaults adds the faults that break a forwarded connection.
func (s *Explainer) addFaults(e *Explanation, d plan.Decision, dst netip.Addr) {
	if !e.IsForwarded() {
		return
	}
	flow := fault.Flow{
		ServicePort: d.Service.Name.String(), FromHost: d.Origin == plan.FromHost, Local: true,
		Addrs: []netip.Addr{dst},
	}
	for _, ep := range d.Endpoints {
		flow.Local = flow.Local && ep.Local
		flow.Addrs = append(flow.Addrs, ep.Addr.Addr())
	}
	for _, f := range s.Faults() {
		if f.Severity >= fault.Problem && f.Scope.Selects(flow) {
			e.AddFault(f)
		}
	}
	fault.Sort(e.Faults)
}

// explanation returns an Explanation that contains only the fields that the packet and the decision determine.
func (q *question) explanation(d plan.Decision) Explanation {
	e := Explanation{
		Source: q.packet.Src.String(), Destination: q.packet.Dst.String(), Protocol: q.packet.Protocol.String(),
		Origin: d.Origin.String(), Verdict: d.Verdict.String(), Reason: d.Reason,
	}
	if q.packet.InInterface != unknownInterface {
		e.Interface = q.packet.InInterface
	}
	if q.hop != nil {
		e.NextHop = q.hop.String()
	}
	if d.Service == nil {
		return e
	}
	e.Service = d.Service.Name.String()
	e.Frontend = fmt.Sprintf("%s %s", d.Frontend.Kind, netip.AddrPortFrom(d.Frontend.Addr, d.Frontend.Port))
	if d.Frontend.Kind == plan.NodePort {
		e.Frontend = fmt.Sprintf("%s *:%d", d.Frontend.Kind, d.Frontend.Port)
	}
	if d.Service.Affinity != 0 && d.Verdict == plan.Forward {
		e.AffinityTimeout = d.Service.Affinity.String()
	}
	return e
}

// addEndpoints adds each endpoint with the next hop on the kernel's route to it. If the kernel has no route to any
// endpoint, addEndpoints changes the verdict to "unreachable".
func (s *Explainer) addEndpoints(e *Explanation, d plan.Decision, src netip.Addr) {
	reachable := len(d.Endpoints) == 0
	var lost netip.AddrPort
	for _, ep := range d.Endpoints {
		hop, err := s.NextHop(ep.Addr.Addr())
		text := hop.String()
		if err != nil {
			text, lost = err.Error(), ep.Addr
		}
		reachable = reachable || err == nil
		e.Endpoints = append(e.Endpoints, ExplainedEndpoint{
			Address: ep.Addr.String(), Local: ep.Local, SNAT: d.SNATFor(src, ep), NextHop: text,
		})
	}
	if !lost.IsValid() {
		return
	}
	e.Fix = "add a route to " + lost.Addr().String() + ", through the Node or router that has the " +
		"address"
	if !reachable {
		e.Verdict, e.Reason = unreachable, e.Reason+", but this host has no route to any endpoint"
	}
}

// addPath adds the scheduler and the shortcut that the backend uses for the connection.
func (s *Explainer) addPath(e *Explanation, d plan.Decision, q *question, bound bool) {
	if d.Service == nil || d.Verdict != plan.Forward {
		return
	}
	path, err := s.Path(d, bound)
	if err != nil {
		e.Gaps = append(e.Gaps, "the scheduler is unknown: "+err.Error())
		return
	}
	if (d.Origin == plan.FromHost) == (q.packet.InInterface == "") && !q.packet.Dst.Addr().IsLoopback() {
		e.Shortcut = path.Shortcut
	}
	if path.Scheduler == "" {
		return
	}
	e.Scheduler, e.Server = path.Scheduler, path.Server.String()
	for i, ep := range d.Endpoints {
		e.Endpoints[i].EndpointLoad = path.Endpoints[ep.Addr]
	}
}

// Services returns the sorted names of all Services in the form "namespace/name".
func (s *Explainer) Services() []string {
	out := []string{}
	if snap := s.State.Snapshot; snap != nil {
		for _, svc := range snap.Services {
			out = append(out, svc.Spec.Namespace+"/"+svc.Spec.Name)
		}
		return out
	}
	if p, _, err := currentPlan(&s.State); err == nil {
		for _, sp := range p.Services {
			out = append(out, sp.Name.Namespace+"/"+sp.Name.Name)
		}
	}
	return slices.Compact(out)
}
