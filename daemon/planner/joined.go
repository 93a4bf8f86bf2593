package planner

import (
	"slices"

	"edgeway/daemon/source"
)

// joined is the list of all problems, and what it was made of. Most plans change no problem: they must not pay for all.
type joined struct {
	host, services, all []source.Problem
}

// join returns the problems of the host and then those of Services. The caller must not change the lists.
func (j *joined) join(host, services []source.Problem) []source.Problem {
	if len(host) == 0 {
		*j = joined{}
		return services
	}
	if !sameList(services, j.services) || !slices.Equal(host, j.host) {
		*j = joined{host, services, slices.Concat(host, services)}
	}
	return j.all
}

// sameList reports whether two lists are one.
func sameList(a, b []source.Problem) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}
