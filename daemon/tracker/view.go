package tracker

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker/sorted"
	"edgeway/proxiers/fault"
)

// maxTriggers is the maximum number of trigger times that the view stores between two snapshots. 1,000 trigger times
// suffice to compute percentiles of the programming latency, and use at most 24 KB even if the pipeline requests no
// snapshot.
const maxTriggers = 1000

type view struct {
	started time.Time
	last    *Snapshot // nil before the first snapshot

	// mergedServices maps each name to the Service and its EndpointSlices. The Service's Spec is nil if only
	// EndpointSlices exist. The view replaces a changed Service instead of modifying it, because snapshots share
	// Services.
	mergedServices map[Name]*Service
	nodes          map[string]*source.Node
	cidrs          map[string]*source.ServiceCIDR
	apis           map[string]*source.APIServer
	// faults maps each object to its faults. A Document may contain another object's faults.
	faults map[fault.Object][]fault.Fault

	dirtyServices map[Name]struct{}
	dirtyFaults   map[fault.Object]struct{}
	dirtyCIDRs    bool
	dirtyAPIs     bool
	triggers      []time.Time

	services, endpoints Changes
}

func newView(started time.Time) *view {
	return &view{
		started:        started,
		mergedServices: map[Name]*Service{},
		nodes:          map[string]*source.Node{},
		cidrs:          map[string]*source.ServiceCIDR{},
		apis:           map[string]*source.APIServer{},
		faults:         map[fault.Object][]fault.Fault{},
		dirtyServices:  map[Name]struct{}{},
		dirtyFaults:    map[fault.Object]struct{}{},
	}
}

// replace replaces the old version of an object with the new version. Either version may be nil.
func (v *view) replace(before, after source.Object) {
	if before != nil {
		v.remove(before)
	}
	if after != nil {
		v.add(after)
	}
	v.count(before, after)
}

func (v *view) remove(obj source.Object) {
	switch o := obj.(type) {
	case *source.Service:
		v.edit(Name{o.Namespace, o.Name}, func(s *Service) { s.Spec = nil })
	case *source.EndpointSlice:
		v.edit(Name{o.Namespace, o.Service}, func(s *Service) { s.Slices = spliceSlice(s.Slices, o.Name) })
	case *source.Node:
		delete(v.nodes, o.Name)
	case *source.ServiceCIDR:
		delete(v.cidrs, o.Name)
		v.dirtyCIDRs = true
	case *source.APIServer:
		delete(v.apis, o.Name)
		v.dirtyAPIs = true
	}
	for _, p := range obj.Problems() {
		faults := v.faults[p.Object]
		if i := slices.Index(faults, p); i >= 0 {
			faults = slices.Delete(faults, i, i+1)
		}
		v.setFaults(p.Object, faults)
	}
}

func (v *view) add(obj source.Object) {
	switch o := obj.(type) {
	case *source.Service:
		v.edit(Name{o.Namespace, o.Name}, func(s *Service) { s.Spec = o })
	case *source.EndpointSlice:
		v.edit(Name{o.Namespace, o.Service}, func(s *Service) { s.Slices = spliceSlice(s.Slices, o.Name, o) })
	case *source.Node:
		v.nodes[o.Name] = o
	case *source.ServiceCIDR:
		v.cidrs[o.Name] = o
		v.dirtyCIDRs = true
	case *source.APIServer:
		v.apis[o.Name] = o
		v.dirtyAPIs = true
	}
	for _, p := range obj.Problems() {
		v.setFaults(p.Object, append(v.faults[p.Object], p))
	}
}

func (v *view) setFaults(object fault.Object, faults []fault.Fault) {
	v.dirtyFaults[object] = struct{}{}
	if len(faults) == 0 {
		delete(v.faults, object)
		return
	}
	v.faults[object] = faults
}

// edit changes the merged Service that has the given name. The view stores a merged Service only while the Service has
// a Spec or a slice.
func (v *view) edit(name Name, change func(*Service)) {
	next := &Service{}
	if s, ok := v.mergedServices[name]; ok {
		*next = *s
	}
	change(next)
	v.dirtyServices[name] = struct{}{}
	if next.Spec == nil && len(next.Slices) == 0 {
		delete(v.mergedServices, name)
		return
	}
	v.mergedServices[name] = next
}

// spliceSlice returns a copy of list in which fresh replaces the slice with the given name. fresh holds at most one
// slice.
func spliceSlice(list []*source.EndpointSlice, name string, fresh ...*source.EndpointSlice) []*source.EndpointSlice {
	return sorted.Splice(list, []string{name},
		func(s *source.EndpointSlice, name string) int { return strings.Compare(s.Name, name) },
		func(int, []*source.EndpointSlice) []*source.EndpointSlice { return fresh })
}

// count counts a change for metrics and stores the trigger time of a new version of a slice. count ignores trigger
// times from before the tracker's start, as in a source's first list, because they say nothing about the latency of
// current changes.
func (v *view) count(before, after source.Object) {
	obj := after
	if obj == nil {
		obj = before
	}
	switch obj.(type) {
	case *source.Service:
		v.services.add()
	case *source.EndpointSlice:
		v.endpoints.add()
	}
	slice, ok := after.(*source.EndpointSlice)
	if !ok || slice.TriggerTime.Before(v.started) || len(v.triggers) == maxTriggers {
		return
	}
	if old, ok := before.(*source.EndpointSlice); ok && old.TriggerTime.Equal(slice.TriggerTime) {
		return
	}
	v.triggers = append(v.triggers, slice.TriggerTime)
}

func (v *view) snapshot() *Snapshot {
	prev := v.last
	if prev == nil {
		prev = &Snapshot{}
	}
	next := &Snapshot{
		Generation:   prev.Generation + 1,
		All:          v.last == nil,
		ServiceCIDRs: prev.ServiceCIDRs,
		APIServers:   prev.APIServers,
		APIPorts:     prev.APIPorts,
		Triggers:     v.triggers,
	}
	next.Services, next.Changed = v.snapshotServices(prev.Services)
	if next.All {
		next.Changed = nil
	}
	next.Problems = v.snapshotProblems(prev.Problems)
	if len(v.nodes) > 0 {
		next.Node = v.nodes[slices.Min(slices.Collect(maps.Keys(v.nodes)))]
	}
	if v.dirtyCIDRs {
		next.ServiceCIDRs = slices.SortedFunc(maps.Values(v.cidrs), func(a, b *source.ServiceCIDR) int {
			return strings.Compare(a.Name, b.Name)
		})
	}
	if v.dirtyAPIs {
		next.APIServers, next.APIPorts = nil, nil
		for _, api := range v.apis {
			next.APIServers = append(next.APIServers, api.Addrs...)
			next.APIPorts = append(next.APIPorts, api.Port())
		}
		slices.SortFunc(next.APIServers, netip.Addr.Compare)
		next.APIServers = slices.Compact(next.APIServers)
		slices.Sort(next.APIPorts)
		next.APIPorts = slices.Compact(next.APIPorts)
	}
	// Clear the recorded changes last, so that the next snapshot includes them if creating this snapshot panics.
	// Replace the maps instead of clearing them, because the old maps are large after the first list.
	v.last, v.dirtyCIDRs, v.dirtyAPIs, v.triggers = next, false, false, nil
	v.dirtyServices, v.dirtyFaults = map[Name]struct{}{}, map[fault.Object]struct{}{}
	v.services.Pending, v.endpoints.Pending = 0, 0
	return next
}

func (v *view) snapshotServices(prev []*Service) (services []*Service, changed []Name) {
	dirty := slices.SortedFunc(maps.Keys(v.dirtyServices), Name.Compare)
	services = sorted.Splice(prev, dirty, (*Service).compareName, func(i int, run []*Service) []*Service {
		s, ok := v.mergedServices[dirty[i]]
		if !ok || s.Spec == nil {
			if len(run) > 0 {
				changed = append(changed, dirty[i])
			}
			return nil
		}
		if len(run) > 0 && run[0].Spec == s.Spec && slices.Equal(run[0].Slices, s.Slices) {
			return run
		}
		changed = append(changed, dirty[i])
		return []*Service{s}
	})
	return services, changed
}

func (v *view) snapshotProblems(prev []fault.Fault) []fault.Fault {
	dirty := slices.SortedFunc(maps.Keys(v.dirtyFaults), fault.Object.Compare)
	return sorted.Splice(prev, dirty,
		func(p fault.Fault, o fault.Object) int { return p.Object.Compare(o) },
		func(i int, _ []fault.Fault) []fault.Fault {
			faults := v.faults[dirty[i]]
			slices.SortStableFunc(faults, func(a, b fault.Fault) int {
				return cmp.Or(strings.Compare(a.Field, b.Field), strings.Compare(a.Message, b.Message))
			})
			return faults
		})
}
