package daemon

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"edgeway/daemon/endpointcheck"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/healthcheck"
	"edgeway/proxiers/localnodeport"
)

// lasting are the parts that outlive the instances: like the rules in the kernel, the listening sockets of followers stay
// while the next instance starts, and endpoints that are dead do not come to life.
type lasting struct {
	loopback  *localnodeport.Proxier
	checks    *healthcheck.Proxier
	endpoints *endpointcheck.Checker
	// healthy is the answer of the instance that runs.
	healthy *atomic.Pointer[func() bool]
	// parts counts panics across reloads.
	parts *contain.Parts
}

func newLasting(logger *slog.Logger, sockets localnodeport.Sockets, relayLoops func() int) lasting {
	l := lasting{healthy: new(atomic.Pointer[func() bool]), endpoints: endpointcheck.New(logger), parts: contain.New(logger)}
	l.loopback = localnodeport.New(localnodeport.Options{Logger: logger.With("stage", localnodeport.Name), Sockets: sockets, Loops: relayLoops, Contain: l.contain})
	l.checks = healthcheck.New(healthcheck.Options{
		Logger:  logger.With("stage", healthcheck.Name),
		Healthy: func() bool { return (*l.healthy.Load())() },
		Contain: l.contain,
	})
	return l
}

// drainTime is how long connections to NodePorts on loopback may take to end. New ones wait
// for the next process, if a service manager keeps their sockets.
const drainTime = 500 * time.Millisecond

func (l lasting) close() {
	_ = l.checks.Close() // never fails
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	l.loopback.Shutdown(ctx)
}

// contain runs the goroutines of the followers that outlive the instances.
func (l lasting) contain(part string, run func()) { l.parts.Loop(part, run, func() {}) }
