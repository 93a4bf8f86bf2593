package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"edgeway/daemon/config"
	"edgeway/daemon/doctor/trace"
	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/messageid"
)

// leftoverCleaner removes the rules of Components that the configuration no longer enables: a disabled follower or,
// after a reload or a restart, a previous backend. The old rules stay until the configured backend has synced, so
// either the old or the new rules apply to every connection.
//
// While both backends have rules, the first backend that chooses an endpoint translates the whole connection, and the
// other backend's rules do not apply. All backends use the same masquerade mark.
type leftoverCleaner struct {
	logger *slog.Logger
	env    proxiers.Env
	// backend is the configured backend. previousBackend is the backend before this reload, or "" if the reload did not
	// change the backend.
	backend, previousBackend string
	// syncSignal receives a value after each full sync.
	syncSignal chan struct{}

	mu         sync.Mutex
	components []leftover // components lists the Components that may still have rules
}

// leftover is a Component that may still have rules.
type leftover struct {
	proxiers.Component
	// err is the error from the latest cleanup attempt, and failingSince is the time of the first failed attempt.
	err          error
	failingSince time.Time
}

const (
	// cleanupTimeout is the time limit for one cleanup attempt. iptables-nft 1.8.9 took 1.2 s to remove the rules for
	// 2,500 Services.
	cleanupTimeout = 5 * time.Minute
	// cleanupRetry is the delay before the next cleanup attempt, unless a full sync triggers it earlier.
	cleanupRetry = 10 * time.Second
)

// newLeftoverCleaner returns a leftoverCleaner that removes the rules of the Components in list. before is the name of
// the previous backend, and may equal the parameter backend.
func newLeftoverCleaner(list []proxiers.Component, env proxiers.Env, backend, before string) *leftoverCleaner {
	l := &leftoverCleaner{logger: env.Logger, env: env, backend: backend, syncSignal: make(chan struct{}, 1)}
	for _, c := range list {
		l.components = append(l.components, leftover{Component: c})
	}
	if before != backend {
		l.previousBackend = before
	}
	return l
}

// notifyFullSync signals, without blocking, that a full sync has finished.
func (l *leftoverCleaner) notifyFullSync() {
	select {
	case l.syncSignal <- struct{}{}:
	default:
	}
}

// run removes the unused rules after the first full sync. run tries again after cleanupRetry and after each full sync,
// until all unused rules are gone or ctx is done.
func (l *leftoverCleaner) run(ctx context.Context) {
	var retry <-chan time.Time
	switching := l.isSwitching()
	for l.pending() {
		select {
		case <-ctx.Done():
			return
		case <-l.syncSignal:
		case <-retry:
		}
		l.remove(ctx)
		if switching && !l.isSwitching() && ctx.Err() == nil {
			switching = false
			l.logger.Info("backend switched", "from", l.previousBackend, "to", l.backend)
		}
		retry = time.After(cleanupRetry)
	}
}

func (l *leftoverCleaner) pending() bool { return len(l.list()) > 0 }

// list returns the Components that may still have rules. Callers must not modify the slice.
func (l *leftoverCleaner) list() []leftover {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.components
}

// remove tries to remove each Component's rules. Only Components that still have rules remain in the list.
func (l *leftoverCleaner) remove(ctx context.Context) {
	var left []leftover
	for _, c := range l.list() {
		after, removed := l.cleanUp(ctx, c)
		if ctx.Err() != nil {
			return // the next instance continues the cleanup
		}
		if !removed {
			left = append(left, after)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.components = left
}

// cleanUp tries once to remove a Component's rules. cleanUp logs an error only if it differs from the previous error.
func (l *leftoverCleaner) cleanUp(ctx context.Context, c leftover) (after leftover, removed bool) {
	limited, cancel := context.WithTimeout(ctx, cleanupTimeout)
	defer cancel()
	err := c.Cleanup(limited, l.env)
	logger := l.logger.With("component", c.Name)
	switch {
	case ctx.Err() != nil || err == nil:
		return leftover{}, true
	case errors.Is(err, proxiers.ErrUnsupported):
		logger.Debug("cannot determine whether an unused component left rules", "error", err)
		return leftover{}, true
	}
	if c.err == nil {
		c.failingSince = time.Now()
	}
	if c.err == nil || c.err.Error() != err.Error() {
		logger.Error("cannot remove an unused component's rules, retrying", "message_id", messageid.LeftoversNotRemoved,
			"error", err)
	}
	c.err = err
	return c, false
}

// isSwitching reports whether a reload changed the backend and the previous backend still has rules.
func (l *leftoverCleaner) isSwitching() bool { return l.previousBackend != "" && l.pending() }

// faults returns a fault if a cleanup failed, or if a backend switch is incomplete.
func (l *leftoverCleaner) faults() []fault.Fault {
	cond := fault.Fault{ID: "leftovers", Severity: fault.Warning}
	of := l.list()
	if i := slices.IndexFunc(of, func(c leftover) bool { return c.err != nil }); i >= 0 {
		cond.Since = of[i].failingSince
		cond.Message = fmt.Sprintf("Edgeway could not remove the rules of %s, which is not configured. "+
			"These rules can send connections to removed endpoints: %v",
			of[i].Name, of[i].err)
		return []fault.Fault{cond}
	}
	if l.isSwitching() {
		cond.Message = fmt.Sprintf("The backend is being switched: the rules of %s stay until %s has "+
			"programmed the kernel", l.previousBackend,
			l.backend)
		return []fault.Fault{cond}
	}
	return nil
}

// Cleanup removes the rules of all backends and followers, including unconfigured ones.
func Cleanup(ctx context.Context, cfg *config.Config, logger *slog.Logger) error {
	var errs []error
	all := followers(cfg, proxiers.Component{}, sharedComponents{})
	for i := range all {
		all[i].enabled = false
	}
	for _, c := range unusedComponents(Backends(), "", all) {
		err := c.Cleanup(ctx, cleanupEnv(cfg, logger.With("component", c.Name)))
		if err != nil && !errors.Is(err, proxiers.ErrUnsupported) {
			errs = append(errs, fmt.Errorf("%s: %w", c.Name, err))
		}
	}
	if err := trace.Cleanup(ctx); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func cleanupEnv(cfg *config.Config, logger *slog.Logger) proxiers.Env {
	return proxiers.Env{
		Logger: logger, Families: proxiers.KernelFamilies(), MasqueradeBit: cfg.Proxy.MasqueradeBit,
		Drift: func(string) {}, Wake: func() {}, Progress: func(int, int) {},
	}
}
