package pipeline

import (
	"math/rand/v2"
	"time"
)

const (
	retryFirst = 250 * time.Millisecond
	retryCap   = 30 * time.Second

	driftFirst = 100 * time.Millisecond
	driftCap   = 30 * time.Second
	// driftQuiet is how long there must be no drift until the next one is repaired at once again.
	driftQuiet = time.Minute
)

// backoff gives growing waiting times, from first to limit, each with a jitter that subtracts up to
// a quarter.
type backoff struct {
	first, limit, next time.Duration
}

func (b *backoff) wait() time.Duration {
	d := max(b.first, min(b.next, b.limit))
	b.next = 2 * d
	return d - rand.N(d/4)
}

func (b *backoff) reset() { b.next = 0 }

// pacing holds the times that all stages share.
type pacing struct {
	notBefore time.Time // end of the last sync and the least time between syncs
	nextFull  time.Time
}

// never is further away than any uptime.
const never = 100 * 365 * 24 * time.Hour

// planFull spreads periodic full syncs by a tenth each way, so that a fleet does not sync at the same time.
// An interval of 0 means none.
func (p *pacing) planFull(now time.Time, interval time.Duration) {
	if interval <= 0 {
		interval = never
	}
	p.nextFull = now.Add(interval - interval/10 + rand.N(interval/5+1))
}

// driftThrottle lets a first drift be repaired at once, and slows down repairs while another program
// keeps removing rules.
type driftThrottle struct {
	notBefore time.Time
	last      time.Time
	backoff   backoff
}

func (d *driftThrottle) hit(now time.Time) {
	if d.backoff.first == 0 || now.Sub(d.last) > driftQuiet {
		d.backoff = backoff{first: driftFirst, limit: driftCap}
	}
	d.last = now
	d.notBefore = now.Add(d.backoff.wait())
}

// applyTimeout bounds an Apply that writes n ServicePorts. The kernel takes 0.1 ms for one; a slow
// board with a busy disk gets a hundred times that.
func applyTimeout(n int) time.Duration {
	return time.Minute + time.Duration(n)*10*time.Millisecond
}

// tendTimeout bounds deferred work of a stage.
const tendTimeout = time.Minute
