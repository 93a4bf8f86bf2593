package pipeline

import (
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// portionWeight bounds what one partial sync of the backend adds: nft takes a second for it. A Service that is created
// meanwhile waits for no more than that.
const portionWeight = 30_000

// portion gives what to put in force next on the way to the change's end: that itself, unless it is very much. Then the
// lightest ServicePorts come first, and the others keep their previous versions for now, unless somebody else has one of
// their addresses.
func portion(change proxiers.Change) *plan.Plan {
	sum := 0
	for _, svc := range change.Changed {
		sum += weight(svc)
	}
	if sum <= portionWeight {
		return change.Next
	}
	list := slices.Clone(change.Changed)
	slices.SortStableFunc(list, func(a, b *plan.ServicePort) int { return weight(a) - weight(b) })
	later := map[*plan.ServicePort]*plan.ServicePort{}
	var versions []*plan.ServicePort
	sum = 0
	for i, svc := range list {
		if sum += weight(svc); i == 0 || sum <= portionWeight {
			continue
		}
		previous := change.Prev.Find(svc.Name, svc.Family)
		if later[svc] = previous; previous != nil {
			versions = append(versions, previous)
		}
	}
	claimed := claimedByOthers(change.Next, versions)
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
