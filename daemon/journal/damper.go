package journal

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"edgeway/proxiers/contain"
	"edgeway/proxiers/messageid"
)

const (
	// maxLines is the maximum number of log lines per minute. Many items, such as Services, can change at the same
	// time.
	maxLines = 20
	// maxChanges is the maximum number of changes to one item that the Damper logs individually within the damping
	// period: three in each direction.
	maxChanges = 6
	// damping is the time that a flapping item must remain unchanged before the Damper again logs every change to the
	// item. While an item flaps, the Damper logs the latest change to the item once per hour.
	damping = time.Hour
	// calmTime is the minimum time without a change before the Damper logs a flapping item's current state.
	calmTime = 15 * time.Minute
	// reviewPeriod is the time between two calls to Damper.review.
	reviewPeriod = time.Minute
)

// Damper logs state changes, for example when a Service loses its endpoints or regains them. The Damper limits the
// number of lines about each item, and the total number of lines. Any goroutine may call a Damper's methods.
type Damper struct {
	log   *slog.Logger
	lines *rate.Limiter

	mu        sync.Mutex
	histories map[string]*history // histories holds the things that changed within damping, by key
	omitted   map[string]int      // omitted counts the omitted lines, by message
	waiting   bool                // a review is scheduled
}

// history holds the recent changes to one item, such as a Service.
type history struct {
	since     time.Time // since is the time of the first counted change
	changes   int
	last      line
	changedAt time.Time // changedAt is the time of the change in last
	// unlogged counts the changes since loggedAt that the Damper has not logged. loggedAt is the time of the latest
	// line about a flapping item.
	unlogged int
	loggedAt time.Time
}

func (t *history) flaps() bool { return t.changes > maxChanges }

type line struct {
	level       slog.Level
	id, message string
	attrs       []any
}

// NewDamper returns a Damper that logs to logger.
func NewDamper(logger *slog.Logger) *Damper {
	return &Damper{
		log: logger, lines: rate.NewLimiter(rate.Every(time.Minute/maxLines), maxLines),
		histories: map[string]*history{}, omitted: map[string]int{},
	}
}

// Log logs a change to the item that key identifies, unless the item flaps or the Damper has reached its line limit. id
// is a constant from package messageid.
func (d *Damper) Log(key string, level slog.Level, id, message string, attrs ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, t := time.Now(), d.histories[key]
	if t == nil || !t.flaps() && now.Sub(t.since) > damping {
		t = &history{since: now}
		d.histories[key] = t
	}
	t.last, t.changedAt = line{level, id, message, attrs}, now
	t.changes++
	switch {
	case t.changes == maxChanges+1:
		t.loggedAt = now
		d.write(line{level, messageid.Flapping, "state changes too often, omitting log lines", attrs})
	case t.flaps():
		t.unlogged++
	case !d.write(t.last) && t.changes == 1:
		delete(d.histories, key) // the number of changed items is unlimited, so forget this item
	}
	d.schedule()
}

// write logs a line or, at the line limit, counts it as omitted. write reports whether it logged the line.
func (d *Damper) write(l line) bool {
	if !d.lines.Allow() {
		d.omitted[l.message]++
		return false
	}
	attrs := append([]any{"message_id", l.id}, l.attrs...)
	d.log.Log(context.Background(), l.level, l.message, attrs...) //nolint:sloglint // a constant of the caller
	return true
}

func (d *Damper) schedule() {
	if !d.waiting && len(d.histories)+len(d.omitted) > 0 {
		d.waiting = true
		time.AfterFunc(reviewPeriod, func() {
			err := contain.Call(func() error {
				d.review()
				return nil
			})
			if err != nil {
				d.log.Error("cannot write the summary of omitted log lines", "error", err, "stack", contain.Stack(err))
			}
		})
	}
}

func (d *Damper) review() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.waiting = false
	for key, t := range d.histories {
		idle := time.Since(t.changedAt)
		switch {
		case t.unlogged > 0 && (idle >= calmTime || time.Since(t.loggedAt) >= damping):
			l := t.last
			l.attrs = append(slices.Clip(l.attrs), "changes", t.unlogged)
			d.write(l)
			t.unlogged, t.loggedAt = 0, time.Now()
		case idle >= damping:
			delete(d.histories, key)
		}
	}
	if len(d.omitted) > 0 {
		d.log.Info("too many state changes, omitting log lines", "message_id", messageid.LinesOmitted,
			"omitted", d.counts())
		clear(d.omitted)
	}
	d.schedule()
}

func (d *Damper) counts() string {
	var out []string
	for _, message := range slices.Sorted(maps.Keys(d.omitted)) {
		out = append(out, fmt.Sprintf("%s: %d", message, d.omitted[message]))
	}
	return strings.Join(out, ", ")
}
