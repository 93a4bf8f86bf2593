package daemon

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"sync"

	"edgeway/daemon/config"
	"edgeway/daemon/health"
	"edgeway/daemon/health/httpserve"
	"edgeway/daemon/metrics"
	"edgeway/proxiers"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/fault"
)

func (i *instance) serve(always func(part string, run func(context.Context))) {
	start := func(s httpserve.Server) {
		s.Logger = i.logger
		s.Handler = i.recordPanics(s.Name+" server", s.Handler)
		s.OnStateChange = func(err error) { i.servers.note(s.Name+".address", s.Addr, err) }
		always(s.Name+" server", s.Run)
	}
	if addr := i.cfg.Health.Address; addr != "" {
		start(httpserve.Server{
			Name: "health", Addr: addr,
			Handler: i.health.Handler(health.HandlerOptions{
				Families: i.families, OnAnswer: i.metrics.RecordHealthAnswer,
			}),
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

// serverFaults holds the faults of the daemon's own servers, indexed by configuration key.
type serverFaults struct {
	mu   sync.Mutex
	down map[string]fault.Fault
}

// note records the reason why a server is down, or removes the server's fault if err is nil.
func (s *serverFaults) note(key, address string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.down, key)
		return
	}
	at, failed := netip.ParseAddrPort(address)
	if failed != nil {
		at, _ = netip.ParseAddrPort("[::]" + address) // address is, for example, ":10256"
	}
	if s.down == nil {
		s.down = map[string]fault.Fault{}
	}
	s.down[key] = proxiers.NewPortFault(fault.Warning, at, key, err)
}

func (s *serverFaults) faults() (out []fault.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(s.down)) {
		out = append(out, s.down[key])
	}
	return out
}

// recordPanics returns a handler that calls h and records h's panics, because net/http (Go 1.26) would write them only
// to its own log. A panic in h must not terminate the daemon, because a request from another host could cause the
// panic.
func (c *Core) recordPanics(part string, h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := contain.Call(func() error {
			h.ServeHTTP(w, r)
			return nil
		})
		if p, ok := errors.AsType[*contain.Panic](err); ok {
			if p.Value != http.ErrAbortHandler { //nolint:errorlint // recover returned this value
				c.parts.Record(part, err)
			}
			panic(http.ErrAbortHandler) // net/http then closes the connection
		}
	})
}
