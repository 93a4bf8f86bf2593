package planner

import "edgeway/proxiers/plan"

// routes is indexed by Origin.
type routes = [3]plan.Route

// policy decides the routes of one ServicePort.
type policy struct {
	cluster, local plan.Route // to each pool, source kept
	detect         bool       // pods can be told
	masqueradeAll  bool
	// masqueradeHost is for the host's own connections, whose source a route of ours chose.
	masqueradeHost bool
}

// newPolicy: a pool without endpoints refuses, except that a local pool without endpoints drops while
// there are endpoints elsewhere: a load balancer then tries another host.
func newPolicy(p pools) policy {
	out := policy{
		cluster: plan.Route{Verdict: plan.Forward, Pool: plan.ClusterPool},
		local:   plan.Route{Verdict: plan.Forward, Pool: plan.LocalPool},
	}
	if p.cluster == nil {
		out.cluster = plan.Route{Verdict: plan.Reject}
	}
	switch {
	case p.local != nil:
	case p.reachable:
		out.local = plan.Route{Verdict: plan.Drop}
	default:
		out.local = plan.Route{Verdict: plan.Reject}
	}
	return out
}

// internal gives the routes of a ClusterIP. Where pods can be told, all that is no pod is masqueraded, as
// it may come from where the endpoint's answer would not find back to. So is what the host itself sends without a default
// route: the endpoint may be on another link than the one whose address it has.
func (p policy) internal(local bool) (r routes) {
	for origin := range r {
		guessed := p.masqueradeHost && plan.Origin(origin) == plan.FromHost
		r[origin] = p.pick(local, p.masqueradeAll || guessed || p.detect && plan.Origin(origin) != plan.FromPod)
	}
	return r
}

// external gives the routes of the other frontends.
//
// With the Local policy connections from outside keep their source. Those of pods and of the host itself
// are short-circuited: they behave as if they went out to a load balancer and came back, so the policy
// does not hold for them. The host's are masqueraded, because their source may be the very address that
// they go to. Where pods cannot be told they are like outside.
func (p policy) external(local bool) (r routes) {
	for origin := range r {
		r[origin] = p.pick(false, !local || plan.Origin(origin) == plan.FromHost)
	}
	if !local {
		return r
	}
	r[plan.FromOutside] = p.pick(true, false)
	if !p.detect {
		r[plan.FromPod] = r[plan.FromOutside]
	}
	return r
}

func (p policy) pick(local, snat bool) plan.Route {
	r := p.cluster
	if local {
		r = p.local
	}
	r.SNAT = snat && r.Verdict == plan.Forward
	return r
}
