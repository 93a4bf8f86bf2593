package pipeline

import (
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// maxStepElements is the maximum number of elements that one partial backend sync adds. nft adds 30,000 elements per
// second. With this limit, a new Service waits for one partial sync rather than for an entire large change. Adding a
// million elements takes more than 12 s.
const maxStepElements = 30_000

// nextStep returns the plan for the next partial sync of a change. Unless the change is very large, nextStep returns
// the final plan. The ServicePorts with the fewest elements change first. The other ServicePorts keep their previous
// versions, unless another ServicePort now has one of their addresses.
func nextStep(change proxiers.Change) *plan.Plan {
	sum := 0
	for _, svc := range change.Changed {
		sum += elementCount(svc)
	}
	if sum <= maxStepElements {
		return change.Next
	}
	list := slices.Clone(change.Changed)
	slices.SortStableFunc(list, func(a, b *plan.ServicePort) int { return elementCount(a) - elementCount(b) })
	later := map[*plan.ServicePort]*plan.ServicePort{}
	var versions []*plan.ServicePort
	sum = 0
	for i, svc := range list {
		if sum += elementCount(svc); i == 0 || sum <= maxStepElements {
			continue
		}
		previous := change.Prev.Find(svc.Name, svc.Family)
		if later[svc] = previous; previous != nil {
			versions = append(versions, previous)
		}
	}
	claimed := conflictingVersions(change.Next, versions)
	return replace(change.Next, func(svc *plan.ServicePort) *plan.ServicePort {
		previous, wait := later[svc]
		switch {
		case !wait:
			return svc
		case claimed[keyOf(svc)]:
			return nil
		}
		return previous
	})
}
