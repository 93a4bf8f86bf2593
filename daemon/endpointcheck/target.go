package endpointcheck

import (
	"container/heap"
	"math/rand/v2"
	"net/netip"
	"time"
)

// target is an endpoint that is checked.
type target struct {
	addr netip.AddrPort
	// due is when the next check begins; index is the place in the queue, or -1 while a check is on its way.
	due   time.Time
	index int
	// dead is the verdict; against counts the last results in a row that speak against it, and since is when the
	// first of them began.
	dead    bool
	against int
	since   time.Time
}

// enqueue schedules the next check.
func (c *Checker) enqueue(t *target, due time.Time) {
	t.due = due
	heap.Push(&c.queue, t)
}

// burst takes the targets from the queue whose time has come, as far as the bounds allow.
func (c *Checker) burst(now time.Time) (out []*target) {
	if now.Before(c.free) {
		return nil
	}
	for len(c.queue) > 0 && !c.queue[0].due.After(now) && len(out) < maxBurst && c.flying < maxFlying {
		out = append(out, heap.Pop(&c.queue).(*target))
		c.flying++
	}
	c.free = now.Add(time.Duration(len(out)) * time.Second / maxRate)
	return out
}

// drop forgets a target. The result of a check that is on its way is nobody's then.
func (c *Checker) drop(t *target) {
	delete(c.targets, t.addr)
	if t.index >= 0 {
		heap.Remove(&c.queue, t.index)
	}
	if t.dead {
		delete(c.faults, t.addr)
		c.stale = true
	}
}

// period is the interval, or more of it where there are many endpoints.
func (c *Checker) period() time.Duration {
	return max(c.settings.Interval, time.Duration(len(c.targets))*(time.Second/maxRate))
}

// phase spreads first checks over a period.
func (c *Checker) phase() time.Duration { return rand.N(c.period() + 1) }

// pause is the time between two checks: a period, or up to a tenth less, so that the checks of many endpoints do not
// fall into step.
func (c *Checker) pause() time.Duration {
	period := c.period()
	return period - rand.N(period/10+1)
}

// take draws the conclusion from a result.
func (c *Checker) take(r result) {
	t := r.target
	if c.targets[t.addr] != t {
		return
	}
	c.enqueue(t, r.began.Add(c.pause()))
	if r.unclear {
		return
	}
	failed := r.fault != ""
	c.counts.add(failed)
	if failed == t.dead {
		t.against = 0
		return
	}
	if t.against == 0 {
		t.since = r.began
	}
	t.against++
	need := c.settings.Failures
	if t.dead {
		need = c.settings.Passes
	}
	if t.against < need {
		return
	}
	t.dead, t.against, c.stale = failed, 0, true
	before := c.faults[t.addr]
	if t.dead {
		c.faults[t.addr] = Fault{Since: t.since, Err: r.fault}
	} else {
		delete(c.faults, t.addr)
	}
	c.note(r, before)
}

// queue is a heap: the target that is due first is at its top.
type queue []*target

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].due.Before(q[j].due) }

func (q queue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].index, q[j].index = i, j
}

// Push implements heap.Interface.
func (q *queue) Push(x any) {
	t := x.(*target)
	t.index = len(*q)
	*q = append(*q, t)
}

// Pop implements heap.Interface.
func (q *queue) Pop() any {
	last := len(*q) - 1
	t := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	t.index = -1
	return t
}
