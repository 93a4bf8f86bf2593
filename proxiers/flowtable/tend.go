package flowtable

import (
	"context"
	"time"
)

// work is deferred work. Tend does it in this order.
type work int

const (
	// anew writes the table anew if another program has changed rules that matter.
	anew work = iota
	// look adds new devices to the flowtable.
	look
	// ask adds all devices once a connection was offered.
	ask
	numWorks
)

const (
	// settle is the time between an event and the work that answers it, because several events come together.
	settle = 100 * time.Millisecond
	// pause is the least time between two answers to changes by other programs.
	pause = time.Second
	// retry is the delay before the next attempt.
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

// Tend implements proxiers.Tender.
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

// isDue reports whether the time of a work has come, and clears it.
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

// again schedules a work.
func (f *follower) again(w work, after time.Duration) {
	f.mu.Lock()
	f.due[w] = time.Now().Add(after)
	f.mu.Unlock()
}

// linksChanged schedules a look at the devices.
func (f *follower) linksChanged() { f.soon(look) }

// rulesChanged schedules a look at another program's change: a connection that is in the flowtable would never meet a
// new rule that drops it.
func (f *follower) rulesChanged() { f.soon(anew) }

// soon schedules a work unless it is scheduled already. Any goroutine may call it.
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
