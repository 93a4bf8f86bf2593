package tracker

import (
	"time"

	"edgeway/daemon/source"
)

// A Service may change flapBurst times at once, and flapRate times a second in the long run: a rollout of hundreds of
// endpoints does no more. One that changes more often is announced once in flapPause, until it has been quiet for a few seconds.
// Each announcement is a sync, which takes some milliseconds of CPU; without this one tenant has a sync run all the time.
const (
	flapBurst = 20
	flapRate  = 2.0
	flapPause = time.Second
	flapCalm  = 5 * time.Second
	// flapsKept is how many Services are remembered, quiet ones too, before any is looked for that may be forgotten.
	flapsKept = 4096
)

// damping holds back the announcements of Services that change all the time, and no others.
type damping struct {
	flaps map[Name]*flap
	// sweepAt is the number of them from which those that are calm again are looked for.
	sweepAt int
	// due is when what was held back is announced; it may have passed.
	due time.Time
}

// flap is how often a Service changed of late: a bucket that leaks.
type flap struct {
	level float64
	last  time.Time
	// next is when it may be announced again. held says that a timer will do that.
	next time.Time
	held bool
}

// hit notes a change and says how long its announcement has to wait.
func (d *damping) hit(name Name, now time.Time) time.Duration {
	f := d.flaps[name]
	if f == nil {
		d.forget(now)
		f = &flap{last: now}
		d.flaps[name] = f
	}
	f.level = max(0, f.level-flapRate*now.Sub(f.last).Seconds())
	f.level, f.last = min(f.level+1, flapBurst+flapRate*flapCalm.Seconds()), now
	if f.level <= flapBurst {
		return 0
	}
	if f.held && !now.Before(f.next) { // the timer has announced it
		f.held, f.next = false, f.next.Add(flapPause)
	}
	if !now.Before(f.next) {
		f.next = now.Add(flapPause)
		return 0
	}
	f.held = true
	return f.next.Sub(now)
}

// forget drops what has leaked away, when there is much: twice of what was left the last time, as a list of all Services
// brings many that have just changed.
func (d *damping) forget(now time.Time) {
	if d.flaps == nil {
		d.flaps = map[Name]*flap{}
	}
	if len(d.flaps) < max(d.sweepAt, flapsKept) {
		return
	}
	for name, f := range d.flaps {
		if f.level < flapRate*now.Sub(f.last).Seconds() {
			delete(d.flaps, name)
		}
	}
	d.sweepAt = 2 * len(d.flaps)
}

// announce tells the reader of a change of an object, at once or later. The caller holds the lock.
func (t *Tracker) announce(obj source.Object) {
	var name Name
	switch o := obj.(type) {
	case *source.Service:
		name = Name{o.Namespace, o.Name}
	case *source.EndpointSlice:
		name = Name{o.Namespace, o.Service}
	default:
		t.notify()
		return
	}
	now := time.Now()
	wait := t.damping.hit(name, now)
	if wait == 0 {
		t.notify()
		return
	}
	if at := now.Add(wait); !now.Before(t.damping.due) || at.Before(t.damping.due) {
		t.damping.due = at
		time.AfterFunc(wait, t.notify)
	}
}
