package sim

import (
	"math/rand/v2"
	"slices"
	"time"
)

type step struct {
	at   time.Duration // the time since the start of the chaos
	name string
	do   func()
}

type episode struct {
	name       string
	longest    time.Duration
	begin, end func()
}

// runFaults runs faults of all kinds at the same time for several minutes, and returns after all faults have ended.
func (s *simulation) runFaults() {
	length := time.Duration(3+s.rand.IntN(20)) * time.Minute
	s.notef("chaos for %s", length)
	s.moved = false
	steps := s.changes(length)
	kinds := []func() episode{
		s.apiFault, s.linkFault, s.kernelFault, s.fileFault, s.diskFault, s.processFault, s.panicFault,
	}
	for _, kind := range kinds {
		if s.rand.IntN(3) > 0 {
			steps = append(steps, s.episodes(length, kind)...)
		}
	}
	s.drawDNSFault()
	slices.SortStableFunc(steps, func(a, b step) int { return int(a.at - b.at) })
	began := time.Now()
	for _, next := range steps {
		s.advance(time.Until(began.Add(next.at)))
		if s.failed {
			return
		}
		s.notef("%s", next.name)
		next.do()
	}
	s.notef("all faults have ended")
}

func (s *simulation) episodes(length time.Duration, kind func() episode) (steps []step) {
	for at := s.between(0, 5*time.Minute); ; {
		e := kind()
		end := at + s.between(time.Second/10, e.longest)
		if end > length {
			return steps
		}
		steps = append(steps, step{at, e.name, e.begin})
		if e.end != nil {
			steps = append(steps, step{end, "end of: " + e.name, e.end})
		}
		at = end + s.between(time.Second, 4*time.Minute)
	}
}

func (s *simulation) between(least, most time.Duration) time.Duration {
	d := least + time.Duration(s.rand.Int64N(int64(most-least)+1))
	if s.rand.IntN(2) == 0 {
		d = least + (d-least)/20
	}
	return d
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

func (s *simulation) changes(length time.Duration) (steps []step) {
	for at := s.between(0, time.Minute); at < length; at += s.between(time.Second/100, 2*time.Minute) {
		kind := pick(s.rand, "endpoints", "endpoints", "endpoints", "add", "delete", "recreate", "exchange", "manifest",
			"manifest", "address")
		steps = append(steps, step{at, "change: " + kind, func() { s.change(kind) }})
	}
	return steps
}

func (s *simulation) change(kind string) {
	s.wanted = nil
	switch svc := pick(s.rand, s.services...); kind {
	case "endpoints":
		svc.change(s.rand)
		s.putService(svc)
	case "add":
		if len(s.services) < 20 {
			s.addService(false)
		}
	case "delete", "recreate":
		if svc.permanent {
			return
		}
		s.notef("%s of %s", kind, svc.name)
		s.api.remove("services", apiNamespace+"/"+svc.name)
		s.api.remove("endpointslices", apiNamespace+"/"+svc.sliceName)
		if kind == "recreate" {
			svc.uid += "x"
			svc.redraw(s.rand)
			s.putService(svc)
			return
		}
		s.services = slices.DeleteFunc(s.services, func(o *service) bool { return o == svc })
	case "exchange":
		// Two Services exchange EndpointSlices: each slice keeps its name, and gets the other Service's label and
		// endpoints. Permanent Services never take part, because the exchange would leave them without endpoints for a
		// moment.
		if other := pick(s.rand, s.services...); other != svc && !other.permanent && !svc.permanent {
			svc.sliceName, other.sliceName = other.sliceName, svc.sliceName
			s.putService(svc)
			s.putService(other)
		}
	case "manifest":
		s.changeManifest()
	case "address":
		s.host.setAddr(pick(s.rand, "192.0.2.1", "192.0.2.2", "192.0.2.3"))
	}
}

func (s *simulation) addService(permanent bool) {
	svc := s.draw(apiNamespace, permanent)
	s.services = append(s.services, svc)
	s.putService(svc)
}

// putService writes a Service and its EndpointSlice in random order.
func (s *simulation) putService(svc *service) {
	s.notef("put %s: %d endpoints", svc.name, len(svc.endpoints))
	key, sliceKey := apiNamespace+"/"+svc.name, apiNamespace+"/"+svc.sliceName
	if s.rand.IntN(2) == 0 {
		s.api.put("endpointslices", sliceKey, encode(svc.slice(apiNamespace)))
		s.api.put("services", key, encode(svc.spec(apiNamespace)))
		return
	}
	s.api.put("services", key, encode(svc.spec(apiNamespace)))
	s.api.put("endpointslices", sliceKey, encode(svc.slice(apiNamespace)))
}

// changeManifest edits a manifest, unless a fault has damaged the manifests.
func (s *simulation) changeManifest() {
	i := s.rand.IntN(2)
	list := s.files.services[i]
	switch {
	case s.damaged:
		return
	case len(list) > 0 && s.rand.IntN(3) > 0:
		pick(s.rand, list...).change(s.rand)
	case len(list) > 2 && !list[len(list)-1].permanent:
		list = list[:len(list)-1]
	case len(list) < 5:
		list = append(list, s.draw(filesNamespace, false))
	}
	s.files.services[i] = list
	s.files.save(i, s.rand.IntN(2) == 0)
}
