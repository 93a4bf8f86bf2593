package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"edgeway/daemon/health"
	"edgeway/proxiers"
	"edgeway/proxiers/messageid"
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

	mu sync.Mutex
	of []leftover // that have not been cleaned up yet
}

// leftover is what one Component left.
type leftover struct {
	proxiers.Component
	// err is the error of the last cleanup, failing the time of the first failure.
	err     error
	failing time.Time
}

const (
	// cleanupTimeout bounds one attempt. For 2,500 Services iptables-nft 1.8.9 took 1.2 s.
	cleanupTimeout = 5 * time.Minute
	// cleanupRetry is from the end of an attempt to the next one, if no full sync comes first.
	cleanupRetry = 10 * time.Second
)

// newLeftovers uses the logger of env. before may be backend itself.
func newLeftovers(of []proxiers.Component, env proxiers.Env, backend, before string) *leftovers {
	l := &leftovers{logger: env.Logger, env: env, backend: backend, synced: make(chan struct{}, 1)}
	for _, c := range of {
		l.of = append(l.of, leftover{Component: c})
	}
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

// run cleans up once a full sync has succeeded, and again from time to time and after each further one until everything is
// removed. It returns then, or when ctx ends.
func (l *leftovers) run(ctx context.Context) {
	var retry <-chan time.Time
	switching := l.switching()
	for l.pending() {
		select {
		case <-ctx.Done():
			return
		case <-l.synced:
		case <-retry:
		}
		l.remove(ctx)
		if switching && !l.switching() && ctx.Err() == nil {
			switching = false
			l.logger.Info("backend switched", "from", l.before, "to", l.backend)
		}
		retry = time.After(cleanupRetry)
	}
}

func (l *leftovers) pending() bool { return len(l.list()) > 0 }

// list gives what is left. Nobody writes to it: remove replaces it.
func (l *leftovers) list() []leftover {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.of
}

// remove cleans up after each Component, and keeps those that have something left.
func (l *leftovers) remove(ctx context.Context) {
	var left []leftover
	for _, c := range l.list() {
		after, removed := l.cleanUp(ctx, c)
		if ctx.Err() != nil {
			return // stopping, not failing: the next instance does it
		}
		if !removed {
			left = append(left, after)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.of = left
}

// cleanUp tries once. It logs what is new.
func (l *leftovers) cleanUp(ctx context.Context, c leftover) (after leftover, removed bool) {
	limited, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	err := c.Cleanup(limited, l.env)
	logger := l.logger.With("component", c.Name)
	switch {
	case ctx.Err() != nil || err == nil:
		return leftover{}, true
	case errors.Is(err, proxiers.ErrUnsupported):
		logger.Debug("cannot check whether an unused component left rules", "error", err)
		return leftover{}, true
	}
	if c.err == nil {
		c.failing = time.Now()
	}
	if c.err == nil || c.err.Error() != err.Error() {
		logger.Error("rules of an unused component not removed, retrying", "message_id", messageid.LeftoversNotRemoved,
			"error", err)
	}
	c.err = err
	return c, false
}

// switching reports whether the previous backend still has rules after a reload with another one.
func (l *leftovers) switching() bool { return l.before != "" && l.pending() }

// conditions reports rules that should be gone.
func (l *leftovers) conditions() []health.Condition {
	cond := health.Condition{Name: "leftovers", Level: health.Warning}
	of := l.list()
	if i := slices.IndexFunc(of, func(c leftover) bool { return c.err != nil }); i >= 0 {
		cond.Since = of[i].failing
		cond.Message = fmt.Sprintf("Rules of %s, which is not configured, could not be removed and can send connections to endpoints that are gone: %v",
			of[i].Name, of[i].err)
		return []health.Condition{cond}
	}
	if l.switching() {
		cond.Message = fmt.Sprintf("The backend is being switched: the rules of %s stay until %s serves", l.before, l.backend)
		return []health.Condition{cond}
	}
	return nil
}
