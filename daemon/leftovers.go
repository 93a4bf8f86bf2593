package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"edgeway/daemon/health"
	"edgeway/proxiers"
)

// leftovers is what other backends left in the kernel: the one before a reload or a restart with another
// proxy.backend, or one whose daemon ended in between. It stays until the backend of now serves, so that
// connections always find the rules of one of the two, and then it goes.
//
// While both are there each translates a connection as a whole: the first that chooses an endpoint, and
// the other one's rules are not asked any more. The mark for "rewrite the source" is the same for both.
type leftovers struct {
	logger  *slog.Logger
	options proxiers.Options
	// backend is the configured one, before the one that served until this reload; empty: the same.
	backend, before string
	// synced has a mark when a full sync has succeeded since the last look.
	synced chan struct{}

	mu     sync.Mutex
	of     []proxiers.Backend // that have not been cleaned up yet
	failed failedCleanup
}

// failedCleanup is why leftovers are still there; zero: nobody has tried, or they are not.
type failedCleanup struct {
	backend string
	since   time.Time
	err     error
}

// cleanupTimeout bounds one try. That of 2,500 Services took iptables-nft 1.8.9 1.2 s.
const cleanupTimeout = 5 * time.Minute

// others are the backends that can have left something when actual serves.
func others(all []proxiers.Backend, actual string) []proxiers.Backend {
	var out []proxiers.Backend
	for _, b := range all {
		if b.Cleanup != nil && b.Name != actual {
			out = append(out, b)
		}
	}
	return out
}

// actualBackend is the name of the backend whose Cleanup would remove what p writes.
func actualBackend(b proxiers.Backend, p proxiers.Proxier) (string, error) {
	if alias, ok := p.(proxiers.Alias); ok {
		return alias.Actual(), nil
	}
	if b.Cleanup == nil {
		return "", errors.New("it does not say which backend it is a name of")
	}
	return b.Name, nil
}

// newLeftovers has a logger and options still to come. before may be backend itself.
func newLeftovers(of []proxiers.Backend, backend, before string) *leftovers {
	l := &leftovers{backend: backend, synced: make(chan struct{}, 1), of: of}
	if before != backend {
		l.before = before
	}
	return l
}

// noteFull says that a full sync has succeeded. It does not block.
func (l *leftovers) noteFull() {
	select {
	case l.synced <- struct{}{}:
	default:
	}
}

// run cleans up once a full sync has succeeded, and again after each further one until all is gone. It
// returns then, or when ctx ends.
func (l *leftovers) run(ctx context.Context) {
	for l.pending() {
		select {
		case <-ctx.Done():
			return
		case <-l.synced:
			l.remove(ctx)
		}
	}
	if l.before != "" {
		l.logger.Info("backend switched", "from", l.before, "to", l.backend)
	}
}

func (l *leftovers) pending() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.of) > 0
}

// remove cleans up after each backend, and keeps those where it failed.
func (l *leftovers) remove(ctx context.Context) {
	var left []proxiers.Backend
	var failed failedCleanup
	for _, b := range l.of {
		err := cleanUp(ctx, b, l.options)
		if ctx.Err() != nil {
			return // stopping, not failing: the next instance does it
		}
		switch {
		case errors.Is(err, proxiers.ErrUnsupported):
			l.logger.Debug("it can not be told whether another backend left rules", "other_backend", b.Name, "error", err)
		case err != nil:
			l.logger.Error("rules of another backend are left until the next full sync", "other_backend", b.Name, "error", err)
			left, failed = append(left, b), failedCleanup{b.Name, time.Now(), err}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if failed.err != nil && l.failed.err != nil {
		failed.since = l.failed.since
	}
	l.of, l.failed = left, failed
}

func cleanUp(ctx context.Context, b proxiers.Backend, opts proxiers.Options) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	return b.Cleanup(ctx, opts)
}

// switching says that a reload with another backend is not done yet: the one before has rules.
func (l *leftovers) switching() bool { return l.before != "" && l.pending() }

// conditions tells of rules that should not be there any more.
func (l *leftovers) conditions() []health.Condition {
	l.mu.Lock()
	defer l.mu.Unlock()
	cond := health.Condition{Name: "other-backend", Level: health.Degraded}
	switch {
	case l.failed.err != nil:
		cond.Since = l.failed.since
		cond.Message = fmt.Sprintf("Rules of backend %s are left beside those of %s, and can send connections to endpoints that are gone: %v",
			l.failed.backend, l.backend, l.failed.err)
	case l.before != "" && len(l.of) > 0:
		cond.Message = fmt.Sprintf("The backend is being switched: the rules of %s stay until %s serves", l.before, l.backend)
	default:
		return nil
	}
	return []health.Condition{cond}
}
