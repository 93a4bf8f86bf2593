package planner

import (
	"reflect"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// shareServices replaces in next what is equal in prev by prev's pointer. Both are in plan order.
func shareServices(prev, next []*plan.ServicePort) {
	share(prev, next, (*plan.ServicePort).Compare, func(a, b *plan.ServicePort) bool { return a.Digest == b.Digest })
}

// shareHealthChecks is shareServices for health checks.
func shareHealthChecks(prev, next []*plan.HealthCheck) {
	share(prev, next, (*plan.HealthCheck).Compare, func(a, b *plan.HealthCheck) bool { return *a == *b })
}

func share[T any](prev, next []*T, compare func(a, b *T) int, equal func(a, b *T) bool) {
	for i := range next {
		for len(prev) > 0 && compare(prev[0], next[i]) < 0 {
			prev = prev[1:]
		}
		if len(prev) > 0 && compare(prev[0], next[i]) == 0 && equal(prev[0], next[i]) {
			next[i] = prev[0]
		}
	}
}

func equalNode(a, b *plan.Node) bool { return reflect.DeepEqual(a, b) }

func compareServicePort(s *plan.ServicePort, n tracker.Name) int {
	return tracker.Name{Namespace: s.Name.Namespace, Name: s.Name.Name}.Compare(n)
}

func compareHealthCheck(h *plan.HealthCheck, n tracker.Name) int {
	return tracker.Name{Namespace: h.Namespace, Name: h.Name}.Compare(n)
}

func compareProblem(p source.Problem, n tracker.Name) int {
	return tracker.Name{Namespace: p.Object.Namespace, Name: p.Object.Name}.Compare(n)
}
