package flowtable

import (
	"context"
	"time"
)

const (
	// settle is the delay between an event and the check that follows, because events often occur in groups.
	settle = 100 * time.Millisecond
	// pause is the minimum time between two checks.
	pause = time.Second
	retry = time.Second
)

func (f *follower) Due() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.due
}

// Maintain rewrites the table if devices have appeared, or if another program has changed relevant rules, because a
// connection in the flowtable would never reach a new rule that drops it.
func (f *follower) Maintain(ctx context.Context) error {
	if !f.isDue() || f.have == nil || f.have.idle() {
		return nil
	}
	why, err := f.outdated()
	if err == nil && why != numReasons {
		err = f.rewrite(ctx, f.have, why)
	}
	if err != nil {
		f.devices = nil // so that the next attempt rewrites the table, whatever the reason was
		f.schedule(retry)
	}
	return err
}

// outdated returns the reason to rewrite the table, or numReasons if no rewrite is needed.
func (f *follower) outdated() (reason, error) {
	relevant, err := f.relevant()
	if err != nil {
		f.env.Logger.Debug("cannot read another program's rules", "error", err)
	}
	if relevant {
		return ofRules, nil
	}
	grown, err := f.grown()
	if grown {
		return ofDevices, nil
	}
	return numReasons, err
}

// isDue reports whether a check is due, and clears nextCheck if so.
func (f *follower) isDue() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	is := !f.due.IsZero() && !f.due.After(time.Now())
	if is {
		f.due = time.Time{}
	}
	return is
}

func (f *follower) schedule(after time.Duration) {
	f.mu.Lock()
	f.due = time.Now().Add(after)
	f.mu.Unlock()
}

// soon schedules a check of the devices and of other programs' rules, unless one is already scheduled. Any
// goroutine may call scheduleCheck.
func (f *follower) soon() {
	f.mu.Lock()
	known := !f.due.IsZero()
	if !known {
		f.due = time.Now().Add(settle)
		if rested := f.written.Add(pause); rested.After(f.due) {
			f.due = rested
		}
	}
	f.mu.Unlock()
	if !known {
		f.env.Wake()
	}
}
