package sim

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
)

// panics triggers panics in the planner and in the sources' conversion of objects.
type panics struct {
	mu            sync.Mutex
	convert, plan map[string]bool // the names of the Services that trigger panics
	seen          map[source.Key]time.Time
}

// hook returns a function that panics for the Services in set and for their EndpointSlices.
func (p *panics) hook(set *map[string]bool) func(source.Key) {
	return func(key source.Key) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if key.Namespace == apiNamespace && (*set)[strings.TrimSuffix(key.Name, sliceSuffix)] {
			p.seen[key] = time.Now()
			panic("simulated, at " + key.String())
		}
	}
}

func (p *panics) set(convert, plan map[string]bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.convert, p.plan, p.seen = convert, plan, map[source.Key]time.Time{}
}

// panicWindow is the time after a panic during which package contain reports the fault "panic".
const panicWindow = 10 * time.Minute

// panicFault returns a fault in which a random component panics.
func (s *simulation) panicFault() episode {
	k := pick(s.rand, s.kernel, s.follower)
	victims := map[string]bool{}
	for _, svc := range s.services {
		if svc.permanent && len(victims) < 1+s.rand.IntN(2) {
			victims[svc.name] = true
		}
	}
	switch s.rand.IntN(4) {
	case 0:
		return episode{k.name + " panics", 30 * time.Second, func() {
			s.searching.Add(1)
			k.set(kernelFault{panics: func(string) bool { return true }})
		}, func() {
			k.set(kernelFault{})
			s.endSearch()
			s.panicUntil = time.Now().Add(panicWindow + time.Minute)
		}}
	case 1:
		return s.exclusionFault(k.name+" panics for Services", func(refused map[string]bool) {
			k.set(kernelFault{panics: func(name string) bool { return refused[name] }})
		}, func() { k.set(kernelFault{}) })
	case 2:
		return s.objectPanicFault("planner panics for Services", victims, func() { s.panics.set(nil, victims) })
	default:
		return s.objectPanicFault("sources panic for Services", victims, func() { s.panics.set(victims, nil) })
	}
}

// objectPanicFault returns a fault in which a component panics when it processes a victim (a Service) or the victim's
// EndpointSlice. The simulation updates the victims at the start and at the end of the fault, so that the component
// processes them.
func (s *simulation) objectPanicFault(name string, victims map[string]bool, begin func()) episode {
	until := func(t time.Time) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for victim := range victims {
			s.blamed[apiNamespace+"/"+victim] = t
		}
	}
	return episode{name, 5 * time.Minute, func() {
		until(time.Now().Add(24 * time.Hour))
		begin()
		for _, svc := range s.services {
			if victims[svc.name] {
				s.touch(svc)
			}
		}
	}, func() {
		until(time.Now().Add(panicWindow))
		s.panics.set(nil, nil)
		for _, svc := range s.services {
			if victims[svc.name] {
				s.touch(svc)
			}
		}
	}}
}

func (s *simulation) touch(svc *service) {
	s.wanted = nil
	svc.port = 80 + (svc.port-80+1)%8
	s.putService(svc)
}

// verifyNamed fails unless the problems name each object that triggered a panic. A problem may appear late, because a
// stage may stall for a minute.
func (s *simulation) verifyNamed(problems []fault.Fault) {
	s.panics.mu.Lock()
	defer s.panics.mu.Unlock()
	for key, at := range s.panics.seen {
		named := func(p fault.Fault) bool {
			return p.Object == key && strings.Contains(p.Message, "simulated, at")
		}
		if at.After(s.process.started) && time.Since(at) > 2*graceLimit && !slices.ContainsFunc(problems, named) {
			s.failf("%s made a part panic %s ago, and no problem names it", key, time.Since(at))
		}
	}
}

var panicCount = regexp.MustCompile(`(\d+) times within`)

// verifyExit fails if the daemon exits before a component panics for the third time within ten minutes, or keeps
// running afterwards. After an exit, verifyExit restarts the daemon, as systemd does.
func (s *simulation) verifyExit() {
	most := 0
	for _, f := range s.process.parts.Faults() {
		count := panicCount.FindStringSubmatch(f.Message)
		if count == nil {
			s.failf("no number of panics: %s", f)
			continue
		}
		times, _ := strconv.Atoi(count[1])
		most = max(most, times)
	}
	select {
	case err := <-s.process.done:
		s.process.done <- nil
		if !contain.IsPanic(err) || most < 3 {
			s.failf("the daemon ended after %d panics of a part with %v", most, err)
		}
		s.notef("the daemon ended: %v", err)
		s.panicUntil = time.Now().Add(panicWindow + time.Minute)
		s.kill(false)
		s.startUnlessDown()
	default:
		if most >= 3 && s.third.IsZero() {
			s.third = time.Now()
		}
		if most >= 3 && time.Since(s.third) > graceLimit {
			s.failf("a part panicked %d times within ten minutes, and the daemon does not end", most)
		}
		if most < 3 {
			s.third = time.Time{}
		}
	}
}

func (f *kernelFault) panicNow(names []string) {
	if f.panics == nil {
		return
	}
	for _, name := range append(names, "") {
		if f.panics(name) {
			panic(fmt.Sprintf("simulated, at %s", name))
		}
	}
}
