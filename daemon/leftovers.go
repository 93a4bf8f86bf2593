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

// leftovers is what Components that are not configured left on the host: another backend before a reload
// or a restart, one whose daemon ended in between, a follower that was turned off. It stays until the configured backend
// serves, so that connections always find the rules of one of the two backends, and is then removed.
//
// While both backends have rules, one of them translates a connection as a whole: the first that chooses an endpoint. The
// rules of the other one do not apply to it then. The mark for masquerade is the same for both.
type leftovers struct {
	logger *slog.Logger
	env    proxiers.Env
	// backend is the configured one, before the one that served until this reload; empty: the same.
	backend, before string
	// synced has a mark when a full sync has succeeded since the last look.
	synced chan struct{}

	mu     sync.Mutex
	of     []proxiers.Component // that have not been cleaned up yet
	failed failedCleanup
}

// failedCleanup is why leftovers are still there; zero: no cleanup has failed.
type failedCleanup struct {
	component string
	since     time.Time
	err       error
}

// cleanupTimeout bounds one attempt. For 2,500 Services iptables-nft 1.8.9 took 1.2 s.
const cleanupTimeout = 5 * time.Minute

// newLeftovers uses the logger of env. before may be backend itself.
func newLeftovers(of []proxiers.Component, env proxiers.Env, backend, before string) *leftovers {
	l := &leftovers{logger: env.Logger, env: env, backend: backend, synced: make(chan struct{}, 1), of: of}
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

// run cleans up once a full sync has succeeded, and again after each further one until everything is removed. It
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

// remove cleans up after each Component, and keeps those where it failed.
func (l *leftovers) remove(ctx context.Context) {
	var left []proxiers.Component
	var failed failedCleanup
	for _, c := range l.of {
		err := cleanUp(ctx, c, l.env)
		if ctx.Err() != nil {
			return // stopping, not failing: the next instance does it
		}
		switch {
		case errors.Is(err, proxiers.ErrUnsupported):
			l.logger.Debug("cannot check whether an unused component left rules", "component", c.Name, "error", err)
		case err != nil:
			l.logger.Error("rules of an unused component not removed, retrying at the next full sync", "component", c.Name, "error", err)
			left, failed = append(left, c), failedCleanup{c.Name, time.Now(), err}
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if failed.err != nil && l.failed.err != nil {
		failed.since = l.failed.since
	}
	l.of, l.failed = left, failed
}

func cleanUp(ctx context.Context, c proxiers.Component, env proxiers.Env) error {
	ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	return c.Cleanup(ctx, env)
}

// switching says that a reload with another backend is not finished: the previous one still has rules.
func (l *leftovers) switching() bool { return l.before != "" && l.pending() }

// conditions reports rules that should not be there any more.
func (l *leftovers) conditions() []health.Condition {
	l.mu.Lock()
	defer l.mu.Unlock()
	cond := health.Condition{Name: "leftovers", Level: health.Warning}
	switch {
	case l.failed.err != nil:
		cond.Since = l.failed.since
		cond.Message = fmt.Sprintf("Rules of %s, which is not configured, could not be removed and can send connections to endpoints that are gone: %v",
			l.failed.component, l.failed.err)
	case l.before != "" && len(l.of) > 0:
		cond.Message = fmt.Sprintf("The backend is being switched: the rules of %s stay until %s serves", l.before, l.backend)
	default:
		return nil
	}
	return []health.Condition{cond}
}
