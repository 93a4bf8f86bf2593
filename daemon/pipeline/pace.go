package pipeline

import (
	"math/rand/v2"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

const (
	retryFirst = 250 * time.Millisecond
	retryCap   = 30 * time.Second

	driftFirst = 100 * time.Millisecond
	driftCap   = 30 * time.Second
	// driftQuietTime is the minimum time without drift before the pipeline again repairs drift immediately.
	driftQuietTime = time.Minute
)

// backoff computes delays that grow from first to limit. Jitter shortens each delay by up to a quarter.
type backoff struct {
	first, limit, next time.Duration
}

func (b *backoff) wait() time.Duration {
	d := max(b.first, min(b.next, b.limit))
	b.next = 2 * d
	return d - rand.N(d/4)
}

func (b *backoff) reset() { b.next = 0 }

type pacing struct {
	notBefore time.Time // the end of the pause after the last sync
	nextFull  time.Time
}

const (
	minPause = time.Millisecond
	// maxPause limits the pause after a long sync, so that a new Service does not wait as long as the sync took. A sync
	// is long if it writes very many elements (5.4 s for 400,000 elements with Linux 6.18) or if a program hangs.
	maxPause = time.Second
)

// pause delays the next sync by the duration of the last sync, but by at most maxPause, so that endless changes leave
// the host time for other work. The next sync applies all changes that occur during the pause.
func (p *pacing) pause(began, ended time.Time) {
	p.notBefore = ended.Add(min(max(ended.Sub(began), minPause), maxPause))
}

const never = 100 * 365 * 24 * time.Hour

// scheduleFull sets the time of the next periodic full sync. The interval varies randomly by up to a tenth, so the
// hosts in a fleet do not all sync at the same time. An interval of 0 disables periodic full syncs.
func (p *pacing) scheduleFull(now time.Time, interval time.Duration) {
	if interval <= 0 {
		interval = never
	}
	p.nextFull = now.Add(interval - interval/10 + rand.N(interval/5+1))
}

// driftThrottle allows an immediate repair of the first drift, and delays further repairs while another program keeps
// removing rules.
type driftThrottle struct {
	notBefore time.Time
	last      time.Time
	backoff   backoff
}

func (d *driftThrottle) hit(now time.Time) {
	if d.backoff.first == 0 || now.Sub(d.last) > driftQuietTime {
		d.backoff = backoff{first: driftFirst, limit: driftCap}
	}
	d.last = now
	d.notBefore = now.Add(d.backoff.wait())
}

// elementCount returns the approximate number of elements or rules that a ServicePort needs in the kernel.
func elementCount(svc *plan.ServicePort) int {
	endpoints := len(svc.Pools[plan.ClusterPool]) + len(svc.Pools[plan.LocalPool])
	n := endpoints
	for i := range svc.Frontends {
		n += 1 + endpoints + len(svc.Frontends[i].AllowFrom)
	}
	return n
}

// applyTimeout returns the time limit for an Apply. nft and the kernel need 0.1 ms per ServicePort and 25 µs per
// element. The limit allows a hundred times as long per ServicePort and twenty times as long per element, because a
// single-board computer may be slow and its disk may be busy.
func applyTimeout(c proxiers.Change) time.Duration {
	limit := time.Minute
	for _, list := range [][]*plan.ServicePort{c.Changed, c.Removed} {
		for _, svc := range list {
			limit += 10*time.Millisecond + time.Duration(elementCount(svc))*500*time.Microsecond
		}
	}
	return min(limit, maxApplyTime)
}

// maxApplyTime is the maximum time for an Apply of any size.
const maxApplyTime = time.Hour

// loopTimeout is the maximum time for the loop's own work between two stages. Planning a million endpoints takes
// seconds.
const loopTimeout = time.Minute

const maintainTimeout = time.Minute
