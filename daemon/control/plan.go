package control

import (
	"fmt"
	"slices"
	"strings"

	"edgeway/daemon/source"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// Plan is the JSON form of a plan.
type Plan struct {
	// InForce reports whether the daemon has applied the plan.
	InForce bool `json:"inForce"`
	*plan.Plan
	// Problems holds the faults found in the plan's input objects.
	Problems []fault.Fault `json:"problems,omitempty"`
}

// NewPlan returns a Plan whose JSON always contains a list of Services, even if the list is empty.
func NewPlan(p *plan.Plan, inForce bool, problems []fault.Fault) Plan {
	list := *p
	list.Services = append([]*plan.ServicePort{}, p.Services...)
	return Plan{inForce, &list, problems}
}

// Filter returns a Plan that contains only one Service ("namespace/name") and its problems, or an error if that Service
// has neither ServicePorts nor problems.
func (v Plan) Filter(name string) (Plan, error) {
	namespace, short, ok := strings.Cut(name, "/")
	if !ok || strings.Contains(short, "/") {
		return v, argumentError{fmt.Errorf("%q is not of the form NAMESPACE/NAME", name)}
	}
	service := source.Key{Kind: source.KindService, Namespace: namespace, Name: short}
	one := *v.Plan
	one.Services = v.FindService(namespace, short)
	one.HealthChecks = slices.DeleteFunc(slices.Clone(v.HealthChecks), func(h *plan.HealthCheck) bool {
		return h.Namespace != namespace || h.Name != short
	})
	problems := slices.DeleteFunc(slices.Clone(v.Problems), func(f fault.Fault) bool { return f.Object != service })
	if len(one.Services)+len(problems) == 0 {
		var known []string
		for _, sp := range v.Services {
			known = append(known, sp.Name.Namespace+"/"+sp.Name.Name)
		}
		return v, unknownService(name, known)
	}
	return Plan{v.InForce, &one, problems}, nil
}
