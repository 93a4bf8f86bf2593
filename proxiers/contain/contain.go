// Package contain keeps panics from ending the process. Call converts a function's panic into an error. Parts restarts
// a daemon component after a panic and counts its panics.
//
// Concurrent map writes, stack overflows and memory exhaustion still end the process, because Go code cannot recover
// from them.
package contain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"edgeway/proxiers/fault"
)

const (
	// Pause is the delay before Parts restarts a part that panicked.
	Pause = 10 * time.Second
	// If a part panics panicLimit times within window, the daemon exits and systemd restarts it in a known state.
	panicLimit = 3
	window     = 10 * time.Minute
	// maxPanics is the maximum number of panics recorded for each part.
	maxPanics = 100
	// maxStack is the maximum size of a logged stack trace, in bytes. maxStack is below 48 kB, because journald
	// (systemd 252) truncates longer fields.
	maxStack = 16 << 10
)

// Panic is the error that Call returns after a panic.
type Panic struct {
	Value any
	at    string
	Stack string
}

// Error returns the panic's value and source line, without the stack trace.
func (p *Panic) Error() string {
	return "panic at " + p.at + ": " + strings.Join(strings.Fields(fmt.Sprintf("%.300v", p.Value)), " ")
}

// panicLine returns the source line of the first stack frame that is below the call to panic and not in package
// runtime.
func panicLine(stack string) string {
	_, below, _ := strings.Cut(stack, "\npanic(")
	lines := strings.Split(below, "\n")
	for i := 2; i+1 < len(lines); i += 2 {
		if place, _, ok := strings.Cut(strings.TrimSpace(lines[i+1]), " "); ok &&
			!strings.HasPrefix(lines[i], "runtime.") {
			return filepath.Base(place)
		}
	}
	return "an unknown line"
}

// Call runs f and returns its error. If f panics, the error is a *Panic.
func Call(f func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			if p, ok := value.(*Panic); ok { // from Rethrow
				err = p
				return
			}
			stack := string(debug.Stack())
			err = &Panic{Value: value, at: panicLine(stack), Stack: stack[:min(len(stack), maxStack)]}
		}
	}()
	return f()
}

// Rethrow panics if err wraps a panic. A function that waits for other goroutines uses Rethrow to propagate their
// panics.
func Rethrow(err error) {
	if p, ok := errors.AsType[*Panic](err); ok {
		panic(p)
	}
}

// Stack returns the stack trace of the panic that err wraps, or "" if err wraps no panic.
func Stack(err error) string {
	if p, ok := errors.AsType[*Panic](err); ok {
		return p.Stack
	}
	return ""
}

// IsPanic reports whether err wraps a panic.
func IsPanic(err error) bool {
	_, ok := errors.AsType[*Panic](err)
	return ok
}

// Parts runs the daemon's components, called parts. Parts is safe for concurrent use.
type Parts struct {
	logger *slog.Logger
	failed chan error

	mu     sync.Mutex
	panics map[string][]time.Time
	last   map[string]error
}

// New returns a Parts with no recorded panics.
func New(logger *slog.Logger) *Parts {
	return &Parts{
		logger: logger, failed: make(chan error, 1), panics: map[string][]time.Time{},
		last: map[string]error{},
	}
}

// Run calls run, and calls it again after a panic unless ctx is done. Run returns run's error, or an error if run
// panicked too often.
func (p *Parts) Run(ctx context.Context, part string, run func(context.Context) error) error {
	for {
		err := Call(func() error { return run(ctx) })
		if !IsPanic(err) {
			return err
		}
		if err := p.Note(part, err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(Pause):
		}
	}
}

// Loop is like Run, but run takes no context. Loop calls again() before each restart of run.
func (p *Parts) Loop(part string, run, again func()) {
	first := true
	// Run has already sent the error to the channel that Failed returns.
	_ = p.Run(context.Background(), part, func(context.Context) error {
		if !first {
			again()
		}
		first = false
		run()
		return nil
	})
}

// Note logs and counts a panic, and returns an error if the daemon must exit.
func (p *Parts) Note(part string, err error) error {
	times := p.Record(part, err)
	if times < panicLimit {
		return nil
	}
	err = fmt.Errorf("part %q panicked %d times within %s: %w", part, times, window, err)
	select {
	case p.failed <- err:
	default:
	}
	return err
}

// Record logs and counts a panic in a request handler. A handler's panic never ends the daemon, because a client could
// repeat the request. Record returns how many times the part panicked in the last ten minutes.
func (p *Parts) Record(part string, err error) (times int) {
	now := time.Now()
	p.mu.Lock()
	recent := append(since(p.panics[part], now.Add(-window)), now)
	recent = recent[max(0, len(recent)-maxPanics):]
	p.panics[part], p.last[part] = recent, err
	p.mu.Unlock()
	p.logger.Error("part panicked", "part", part, "times", len(recent), "error", err, "stack", Stack(err))
	return len(recent)
}

// Failed returns a channel that receives an error when the daemon must exit.
func (p *Parts) Failed() <-chan error { return p.failed }

// PanicFault is the ID of the faults that Faults returns.
const PanicFault = "panic"

// Faults returns a fault for each part that panicked in the last ten minutes, sorted by name. Faults returns only
// warnings, because each part is running again and the kernel still forwards traffic.
func (p *Parts) Faults() (out []fault.Fault) {
	after := time.Now().Add(-window)
	p.mu.Lock()
	defer p.mu.Unlock()
	for part, times := range p.panics {
		if times = since(times, after); len(times) > 0 {
			f := fault.New(PanicFault, fault.Warning, "journalctl -u edgeway -p err  # shows the stack trace",
				"a bug stopped this part of Edgeway %d times within ten minutes, "+
					"and the daemon restarted the part each time: %s",
				len(times), p.last[part])
			f.Since = times[0]
			out = append(out, f.WithName(part))
		}
	}
	slices.SortFunc(out, func(a, b fault.Fault) int { return a.Object.Compare(b.Object) })
	return out
}

func since(times []time.Time, t time.Time) []time.Time {
	i := slices.IndexFunc(times, t.Before)
	if i < 0 {
		return nil
	}
	return times[i:]
}
