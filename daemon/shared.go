package daemon

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/health"
	"edgeway/daemon/journal"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/healthcheck"
	"edgeway/proxiers/localnodeport"
)

// shared are the parts that outlive an instance: the listening sockets of followers stay open while the next instance
// starts, and an endpoint that failed its checks stays out of use.
type shared struct {
	loopback     *localnodeport.Proxier
	healthChecks *healthcheck.Proxier
	endpoints    *endpointcheck.Checker
	// healthy returns the health of the instance that runs.
	healthy *atomic.Pointer[func() bool]
	// parts counts panics.
	parts *contain.Parts
	// lines knows what was logged a while ago.
	lines    *journal.Damper
	faultLog *health.FaultLog
}

func newShared(logger *slog.Logger, sockets localnodeport.Sockets) shared {
	lines := journal.NewDamper(logger)
	s := shared{
		healthy: new(atomic.Pointer[func() bool]), endpoints: endpointcheck.New(lines),
		parts: contain.New(logger), lines: lines, faultLog: newFaultLog(logger),
	}
	s.loopback = localnodeport.New(localnodeport.Options{
		Logger: logger.With("stage", localnodeport.Name), Sockets: sockets, Contain: s.contain,
		Panicked: func(err error) { s.parts.Record("connection to a NodePort on loopback", err) },
	})
	s.healthChecks = healthcheck.New(healthcheck.Options{
		Logger:  logger.With("stage", healthcheck.Name),
		Healthy: func() bool { return (*s.healthy.Load())() },
		Contain: s.contain,
	})
	return s
}

// drainTime bounds the wait for the connections to NodePorts on loopback to end. New connections wait for the next
// process if a service manager keeps the sockets.
const drainTime = 500 * time.Millisecond

func (s shared) close() {
	_ = s.healthChecks.Close() // never fails
	ctx, cancel := context.WithTimeout(context.Background(), drainTime)
	defer cancel()
	s.loopback.Shutdown(ctx)
}

// contain runs a goroutine of a shared follower, and runs it again after a panic.
func (s shared) contain(part string, run func()) { s.parts.Loop(part, run, func() {}) }
