package main

import (
	"errors"
	"fmt"

	"edgeway/test/bench/kit"
)

// bound is what a ratio, or a figure, must not exceed.
type bound struct {
	name  string
	value float64 // measured
	limit float64
	unit  string // empty: a ratio
	known bool   // false: not measured in this run
}

// Numbers of Services that bounds are about, and the one that growth is judged against.
const (
	largeSize  = 10000
	mediumSize = 5000
	thousand   = 1000
	smallSize  = 100
)

// nftablesBounds judges a run in nftables mode.
func (r results) nftablesBounds() []bound {
	var all []bound
	for _, m := range []measure{change, change.CPU(), newService, newService.CPU()} {
		all = append(all, r.versusPeer(m, largeSize, 1.0/50), r.growth(m, 1.2))
	}
	all = append(all, r.versus(floorName, change, largeSize, 1.3), r.versus(floorName, newService, largeSize, 1.5))
	all = append(all,
		r.versusPeer(burst, largeSize, 1.0/10),
		r.versusPeer(burst.CPU(), largeSize, 1.0/10),
		r.versusPeer(firstSync, largeSize, 1.0/8),
		r.versusPeer(restart, largeSize, 1.0/8),
		r.versusPeer(kernelMemory, largeSize, 1.0/5),
		r.versusPeer(resident, largeSize, 1.0/2),
		r.absolute(resident, fewServices, 35e6),
		r.versusPeer(connection, largeSize, 1),
		r.absolute(coldPlanned, largeSize, 1),
	)
	if first, ok := r.median(firstSync, largeSize, oursName); ok {
		all = append(all, r.absolute(coldStart, largeSize, first))
	}
	return all
}

// iptablesBounds judges a run in one of the iptables modes.
func (r results) iptablesBounds(firstSyncLimit float64) []bound {
	var all []bound
	for _, services := range []int{mediumSize, largeSize} {
		for _, m := range []measure{change, change.CPU()} {
			all = append(all, r.versusPeer(m, services, 1.0/3))
		}
	}
	return append(all, r.versusPeer(firstSync, mediumSize, firstSyncLimit), r.versusPeer(resident, largeSize, 1.0/2))
}

// ipvsBounds judges a run in ipvs mode.
func (r results) ipvsBounds() []bound {
	return []bound{
		r.versusPeer(firstSync, thousand, 1.0/2),
		r.versusPeer(firstSync, mediumSize, 1.0/2),
		r.versusPeer(change.CPU(), mediumSize, 1.0/50),
		r.increase(change.CPU(), mediumSize, 0.0005),
		r.versusPeer(newService, mediumSize, 1.0/10),
		r.versusPeer(resident, mediumSize, 1.0/2),
		r.versusPeer(request, mediumSize, 1),
		r.versusPeer(stream, mediumSize, 1/0.95),
	}
}

// previousBounds wants no figure to be worse than that of an earlier Edgeway in the same run by more than a twentieth.
func (r results) previousBounds(sizes []int) []bound {
	var all []bound
	for _, m := range measures() {
		for _, services := range append([]int{fewServices}, sizes...) {
			if b := r.versusPeer(m, services, 1.05); b.known {
				all = append(all, b)
			}
		}
	}
	return all
}

func (r results) versusPeer(m measure, services int, limit float64) bound {
	return r.versus(peerName, m, services, limit)
}

func (r results) versus(other string, m measure, services int, limit float64) bound {
	value, known := r.ratio(m, services, services, other)
	return bound{name: fmt.Sprintf("%s at %d, of the %s's", m, services, other), value: value, limit: limit, known: known}
}

func (r results) growth(m measure, limit float64) bound {
	value, known := r.ratio(m, largeSize, smallSize, oursName)
	return bound{name: fmt.Sprintf("%s at %d, of our own at %d", m, largeSize, smallSize), value: value, limit: limit, known: known}
}

// increase is how much more our own figure is than at the small size.
func (r results) increase(m measure, services int, limit float64) bound {
	value, known := r.median(m, services, oursName)
	small, knownSmall := r.median(m, smallSize, oursName)
	divisor, unit := unit(m)
	return bound{
		name:  fmt.Sprintf("%s at %d, more than our own at %d", m, services, smallSize),
		value: (value - small) / divisor, limit: limit / divisor, unit: unit, known: known && knownSmall,
	}
}

func (r results) absolute(m measure, services int, limit float64) bound {
	value, known := r.median(m, services, oursName)
	divisor, unit := unit(m)
	return bound{name: fmt.Sprintf("%s at %d", m, services), value: value / divisor, limit: limit / divisor, unit: unit, known: known}
}

// judge fails for bounds that were not measured, or do not hold.
func judge(bounds []bound) error {
	var all []error
	for _, b := range bounds {
		if verdict := b.verdict(); verdict != holds {
			all = append(all, fmt.Errorf("%s: %s: %s", b.name, b.format(b.value), verdict))
		}
	}
	return errors.Join(all...)
}

// holds is the verdict of a bound that does.
const holds = "pass"

func (b bound) verdict() string {
	switch {
	case !b.known:
		return "not measured"
	case b.value <= b.limit:
		return holds
	}
	return "FAIL"
}

func (b bound) format(v float64) string {
	switch {
	case !b.known:
		return "–"
	case b.unit != "":
		return fmt.Sprintf("%s %s", kit.Short(v), b.unit)
	case v > 0 && v < 0.5:
		return fmt.Sprintf("1/%s", kit.Short(1/v))
	}
	return kit.Short(v)
}
