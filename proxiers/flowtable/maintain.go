package flowtable

import (
	"context"
	"time"
)

const (
	// inspectionDelay is the delay between an event and the next inspection. Because of the delay, one inspection
	// usually covers a whole burst of events.
	inspectionDelay = 100 * time.Millisecond
	// inspectionInterval is the minimum time between two inspections.
	inspectionInterval = time.Second
	retry              = time.Second
)

func (f *follower) Due() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.nextInspection
}

// Maintain rewrites the nftables table if devices have appeared or if another program has changed rules for forwarded
// packets. Without the rewrite, an offloaded connection's packets would bypass a new rule that should drop them.
func (f *follower) Maintain(ctx context.Context) error {
	if !f.isDue() || f.tableContents == nil || f.tableContents.idle() {
		return nil
	}
	why, err := f.rewriteReason()
	if err == nil && why != numReasons {
		err = f.rewrite(ctx, f.tableContents, why)
	}
	if err != nil {
		f.devices = nil // so that the next attempt rewrites the table, whatever the reason was
		f.schedule(retry)
	}
	return err
}

// rewriteReason returns the reason to rewrite the nftables table, or numReasons if no rewrite is necessary.
func (f *follower) rewriteReason() (reason, error) {
	relevant, err := f.hasRelevantChange()
	if err != nil {
		f.env.Logger.Debug("cannot read another program's rules", "error", err)
	}
	if relevant {
		return ofRules, nil
	}
	grown, err := f.hasNewDevices()
	if grown {
		return ofDevices, nil
	}
	return numReasons, err
}

// isDue reports whether an inspection is due, and if so, clears nextInspection.
func (f *follower) isDue() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	is := !f.nextInspection.IsZero() && !f.nextInspection.After(time.Now())
	if is {
		f.nextInspection = time.Time{}
	}
	return is
}

func (f *follower) schedule(after time.Duration) {
	f.mu.Lock()
	f.nextInspection = time.Now().Add(after)
	f.mu.Unlock()
}

// scheduleInspection schedules an inspection of the devices and of other programs' rules, unless one is already
// scheduled. Any goroutine may call scheduleInspection.
func (f *follower) scheduleInspection() {
	f.mu.Lock()
	known := !f.nextInspection.IsZero()
	if !known {
		f.nextInspection = time.Now().Add(inspectionDelay)
		if rested := f.lastInspection.Add(inspectionInterval); rested.After(f.nextInspection) {
			f.nextInspection = rested
		}
	}
	f.mu.Unlock()
	if !known {
		f.env.Wake()
	}
}
