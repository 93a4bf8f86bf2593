package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"syscall"

	"edgeway/daemon/config"
	"edgeway/daemon/health"
	"edgeway/daemon/health/httpserve"
	"edgeway/daemon/metrics"
	"edgeway/proxiers"
)

// serve runs the servers of health and metrics.
func (i *instance) serve(always func(part string, run func(context.Context))) {
	start := func(s httpserve.Server) {
		s.Logger = i.logger
		s.Handler = i.answering(s.Name+" server", s.Handler)
		s.Down = func(err error) { i.servers.note(s.Name+".address", s.Addr, err) }
		always(s.Name+" server", s.Run)
	}
	if addr := i.cfg.Health.Address; addr != "" {
		start(httpserve.Server{
			Name: "health", Addr: addr,
			Handler: i.health.Handler(health.HandlerOptions{Families: i.families, Answered: i.metrics.HealthAnswered}),
		})
	}
	if addr := i.cfg.Metrics.Address; addr != "" {
		start(httpserve.Server{
			Name: "metrics", Addr: addr, WebConfig: i.cfg.Metrics.WebConfig,
			Handler: i.metrics.Handler(metrics.HandlerOptions{
				Config: func() string { return config.Dump(i.cfg) }, Pprof: i.cfg.Metrics.Pprof,
				HasUsers: func() bool { return httpserve.HasUsers(i.cfg.Metrics.WebConfig) },
			}),
		})
	}
}

// servers holds the errors of the daemon's own servers, by their key in the configuration.
type servers struct {
	mu   sync.Mutex
	down map[string]proxiers.Waiting
}

// note stores why the server of a key does not serve, or removes it if err is nil.
func (s *servers) note(key, address string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.down, key)
		return
	}
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno // Waiting has the address
	}
	at, failed := netip.ParseAddrPort(address)
	if failed != nil {
		at, _ = netip.ParseAddrPort("[::]" + address) // ":10256"
	}
	if s.down == nil {
		s.down = map[string]proxiers.Waiting{}
	}
	s.down[key] = proxiers.Waiting{Address: at, Service: key, Err: err}
}

func (s *servers) waiting() []proxiers.Waiting {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.SortedFunc(maps.Values(s.down),
		func(a, b proxiers.Waiting) int { return cmp.Compare(a.Service, b.Service) })
}

// maxPorts bounds the conditions of ports; the notListening of edgeway status --json has all.
const maxPorts = 10

// portConditions name ports that are not served. Connections to those of Services fail; those of the daemon itself tell
// of them alone.
func portConditions(services, own []proxiers.Waiting) (out []health.Condition) {
	for i, w := range slices.Concat(services, own) {
		level := health.Problem
		if i >= len(services) {
			level = health.Warning
		}
		if len(out) == maxPorts && level == health.Problem {
			continue
		}
		c := health.Condition{
			Name: "ports", Level: level,
			Mend: "ss -tlnp  # shows which program listens there: stop it, or change the port",
		}
		c.Message = fmt.Sprintf("%s of %s is not served: %v", w.Address, w.Service, w.Err)
		if more := len(services) - maxPorts; i == maxPorts-1 && more > 0 {
			c.Message += fmt.Sprintf("; and neither are %d more", more)
		}
		out = append(out, c)
	}
	return out
}
