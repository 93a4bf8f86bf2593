package flowtable

import (
	"context"
	"time"
)

// work is what is done later, in this order.
type work int

const (
	// anew writes the table anew if another program has changed rules that matter.
	anew work = iota
	// look has the flowtable know new devices.
	look
	// ask has all devices join once a connection was offered.
	ask
	numWorks
)

const (
	// settle is how long after an event it is acted on: several come together.
	settle = 100 * time.Millisecond
	// pause is the least time between two writings of the table that changes by other programs cause.
	pause = time.Second
	// retry is when is tried again what failed.
	retry = time.Second
)

// Due implements proxiers.Tender.
func (f *follower) Due() (first time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.due {
		at := f.due[i]
		if !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first
}

// Tend does the works that are due.
func (f *follower) Tend(ctx context.Context) error {
	now := time.Now()
	for w := range numWorks {
		if !f.isDue(w, now) || f.have == nil || f.have.idle() {
			continue
		}
		if err := f.do(ctx, w); err != nil {
			f.again(w, retry)
			return err
		}
	}
	return nil
}

func (f *follower) do(ctx context.Context, w work) error {
	switch w {
	case anew:
		relevant, err := f.relevant()
		if err != nil {
			f.env.Logger.Debug("reading another program's rules failed", "error", err)
		}
		if !relevant {
			return nil
		}
		return f.rewrite(ctx, f.have, ofRules)
	case look:
		return f.addDevices(ctx)
	default:
		return f.join(ctx)
	}
}

// isDue says that the time of a work has come, and takes it away.
func (f *follower) isDue(w work, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	at := f.due[w]
	is := !at.IsZero() && !at.After(now)
	if is {
		f.due[w] = time.Time{}
	}
	return is
}

// again has a work done after a time.
func (f *follower) again(w work, after time.Duration) {
	f.mu.Lock()
	f.due[w] = time.Now().Add(after)
	f.mu.Unlock()
}

// linksChanged has the devices looked at soon.
func (f *follower) linksChanged() { f.soon(look) }

// rulesChanged has the table written anew soon if what changed is relevant: a connection that is in the flowtable would never meet a new
// rule that drops it.
func (f *follower) rulesChanged() { f.soon(anew) }

// soon has a work done in a moment, unless it is to be done already. It is for other goroutines than that of Tend.
func (f *follower) soon(w work) {
	f.mu.Lock()
	known := !f.due[w].IsZero()
	if !known {
		at := time.Now().Add(settle)
		if rested := f.written.Add(pause); w == anew && rested.After(at) {
			at = rested
		}
		f.due[w] = at
	}
	f.mu.Unlock()
	if !known {
		f.env.Wake()
	}
}
