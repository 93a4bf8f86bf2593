package control

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// Plan is a plan.Plan for people, with everything written out.
type Plan struct {
	Generation uint64 `json:"generation"`
	// InForce is false for a plan that is not in the kernel.
	InForce      bool          `json:"inForce"`
	Node         PlanNode      `json:"node"`
	Services     []PlanService `json:"services"`
	HealthChecks []HealthCheck `json:"healthChecks,omitempty"`
	// Problems are those of the objects that the plan is made from.
	Problems []fault.Fault `json:"problems,omitempty"`
}

// PlanNode is the host as the plan sees it.
type PlanNode struct {
	Name          string         `json:"name"`
	NodePortAddrs []netip.Addr   `json:"nodePortAddresses,omitempty"`
	PodSources    []netip.Prefix `json:"podSources,omitempty"`
	PodInterfaces []string       `json:"podInterfaces,omitempty"`
	ServiceCIDRs  []netip.Prefix `json:"serviceCIDRs,omitempty"`
}

// PlanService is one port of one Service in one family.
type PlanService struct {
	Name      string         `json:"name"` // "namespace/name:port/TCP"
	Family    string         `json:"family"`
	Affinity  string         `json:"affinity,omitempty"` // a duration
	LongLived bool           `json:"longLived,omitempty"`
	Scheduler string         `json:"scheduler,omitempty"` // that the Service asks for
	Frontends []PlanFrontend `json:"frontends"`
	Endpoints []PlanEndpoint `json:"endpoints"`
	// Out are the dead endpoints, and how they fail, one line each. They are in no pool while another one answers.
	Out []string `json:"out,omitempty"`
	// Gaps are what the backend or a follower does differently, one sentence each.
	Gaps []string `json:"gaps,omitempty"`
}

// Gaps gives the declared differences of all Components for a ServicePort; nil: there are none.
type Gaps func(*plan.ServicePort) []proxiers.Gap

// texts gives a line for each.
func (g Gaps) texts(svc *plan.ServicePort) (out []string) {
	if g == nil {
		return nil
	}
	for _, gap := range g(svc) {
		out = append(out, gap.Feature+": "+gap.Reason)
	}
	return out
}

// PlanFrontend is one address and port, and what happens there to connections of each origin.
type PlanFrontend struct {
	Kind    string `json:"kind"`
	Address string `json:"address"` // "*:30080" for a NodePort
	// AllowFrom absent: any source; empty: none.
	AllowFrom *[]netip.Prefix `json:"allowFrom,omitempty"`
	// Pod, Host and Outside are as in "forward to the cluster pool, masquerade", "reject" and "drop".
	Pod     string `json:"pod"`
	Host    string `json:"host"`
	Outside string `json:"outside"`
}

// PlanEndpoint is one endpoint and the pools that it is in.
type PlanEndpoint struct {
	Address string   `json:"address"`
	Pools   []string `json:"pools"`
	Local   bool     `json:"local,omitempty"`
	Weight  uint16   `json:"weight,omitempty"` // that the Service gives it
}

// HealthCheck is one healthCheckNodePort.
type HealthCheck struct {
	Service        string `json:"service"`
	Port           uint16 `json:"port"`
	LocalEndpoints int    `json:"localEndpoints"`
}

// NewPlan writes a plan out.
func NewPlan(p *plan.Plan, problems []fault.Fault, gaps Gaps) Plan {
	v := Plan{Generation: p.Generation, Services: make([]PlanService, 0, len(p.Services))}
	if n := p.Node; n != nil {
		v.Node = PlanNode{
			Name: n.Name, NodePortAddrs: nodePortAddrs(n), PodSources: n.PodSources,
			PodInterfaces: n.PodInterfaces, ServiceCIDRs: n.ServiceCIDRs,
		}
	}
	for _, svc := range p.Services {
		s := newPlanService(svc)
		s.Gaps = gaps.texts(svc)
		v.Services = append(v.Services, s)
	}
	for _, h := range p.HealthChecks {
		v.HealthChecks = append(v.HealthChecks, HealthCheck{h.Namespace + "/" + h.Name, h.Port, h.LocalReady})
	}
	v.Problems = problems
	return v
}

// nodePortAddrs gives all addresses that accept NodePorts, loopback last.
func nodePortAddrs(n *plan.Node) []netip.Addr {
	return slices.Concat(n.NodePortAddrs, n.LoopbackAddrs)
}

// Only keeps one Service ("namespace/name"), whose problems are the plan's. It is an error if there is neither.
func (v Plan) Only(name string) (Plan, error) {
	if strings.Count(name, "/") != 1 {
		return v, argumentError{fmt.Errorf("%q is not of the form NAMESPACE/NAME", name)}
	}
	all := v
	v.Services, v.HealthChecks = []PlanService{}, nil
	for _, s := range all.Services {
		if strings.HasPrefix(s.Name, name+":") || strings.HasPrefix(s.Name, name+"/") {
			v.Services = append(v.Services, s)
		}
	}
	for _, h := range all.HealthChecks {
		if h.Service == name {
			v.HealthChecks = append(v.HealthChecks, h)
		}
	}
	if len(v.Services)+len(v.Problems) == 0 {
		var known []string
		for _, s := range all.Services {
			namespace, rest, _ := strings.Cut(s.Name, "/")
			known = append(known, namespace+"/"+rest[:strings.IndexAny(rest, ":/")])
		}
		return v, unknownService(name, known)
	}
	return v, nil
}

func newPlanService(svc *plan.ServicePort) PlanService {
	v := PlanService{
		Name: svc.Name.String(), Family: svc.Family.String(), LongLived: svc.LongLived, Scheduler: svc.Scheduler,
		Frontends: make([]PlanFrontend, 0, len(svc.Frontends)), Endpoints: []PlanEndpoint{},
	}
	if svc.Affinity != 0 {
		v.Affinity = svc.Affinity.String()
	}
	for i := range svc.Frontends {
		v.Frontends = append(v.Frontends, newPlanFrontend(&svc.Frontends[i]))
	}
	at := map[netip.AddrPort]int{}
	for pool, endpoints := range svc.Pools {
		for _, e := range endpoints {
			i, seen := at[e.Addr]
			if !seen {
				i = len(v.Endpoints)
				at[e.Addr] = i
				v.Endpoints = append(v.Endpoints,
					PlanEndpoint{Address: e.Addr.String(), Local: e.Local, Weight: e.Weight})
			}
			v.Endpoints[i].Pools = append(v.Endpoints[i].Pools, plan.Pool(pool).String())
		}
	}
	return v
}

func newPlanFrontend(f *plan.Frontend) PlanFrontend {
	v := PlanFrontend{
		Kind: f.Kind.String(), Address: frontendAddress(f),
		Pod: route(f.Routes[plan.FromPod]), Host: route(f.Routes[plan.FromHost]),
		Outside: route(f.Routes[plan.FromOutside]),
	}
	if f.AllowFrom != nil {
		v.AllowFrom = &f.AllowFrom
	}
	return v
}

func frontendAddress(f *plan.Frontend) string {
	if f.Kind == plan.NodePort {
		return fmt.Sprintf("*:%d", f.Port)
	}
	return netip.AddrPortFrom(f.Addr, f.Port).String()
}

func route(r plan.Route) string {
	if r.Verdict != plan.Forward {
		return r.Verdict.String()
	}
	s := fmt.Sprintf("forward to the %s pool", r.Pool)
	if r.SNAT {
		s += ", masquerade"
	}
	return s
}
