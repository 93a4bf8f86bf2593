package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"edgeway/proxiers/healthcheck/httpbound"
	"edgeway/proxiers/plan"
)

// closeTimeout is the time limit for requests in progress when a server closes.
const closeTimeout = time.Second

type server struct {
	listener net.Listener
	http     *http.Server
	check    atomic.Pointer[plan.HealthCheck]
	// runAsync runs a function in a goroutine that Proxier.running counts.
	runAsync func(func())
}

// persistentListener is a listener that http.Server cannot close. If Serve panics, http.Server (Go 1.26) closes its
// listener, but the restarted server still needs it.
type persistentListener struct{ net.Listener }

func (persistentListener) Close() error { return nil }

// serve starts a goroutine that responds to requests until the caller calls server.close.
func (p *Proxier) serve(listener net.Listener, check *plan.HealthCheck) *server {
	s := &server{listener: listener}
	s.check.Store(check)
	s.runAsync = func(f func()) { p.opts.Contain.Go(&p.running, "health check server shutdown", f) }
	s.http = httpbound.Server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeResponse(w, s.check.Load(), p.opts.Healthy())
	}), p.opts.Logger)
	s.http.DisableGeneralOptionsHandler = true // all methods get the same response, including "OPTIONS *"
	p.opts.Contain.Go(&p.running, "health check server", func() {
		err := s.http.Serve(p.limit.Listener(persistentListener{listener}))
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			p.opts.Logger.Error("health check server stopped", "address", listener.Addr().String(), "error", err)
		}
	})
	return s
}

// close closes the listener immediately. Requests in progress then have closeTimeout to finish.
func (s *server) close() {
	_ = s.listener.Close() // fails only if the listener is already closed
	s.runAsync(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if s.http.Shutdown(ctx) != nil {
			_ = s.http.Close() // closes the remaining connections
		}
	})
}

// writeResponse writes the same response as kube-proxy v1.36.
func writeResponse(w http.ResponseWriter, check *plan.HealthCheck, healthy bool) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(check.LocalReady))
	if check.LocalReady > 0 && healthy {
		w.WriteHeader(http.StatusOK)
	} else {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	// A write error means that the client has disconnected.
	_, _ = fmt.Fprintf(w, `{
	"service": {
		"namespace": %q,
		"name": %q
	},
	"localEndpoints": %d,
	"serviceProxyHealthy": %t
}`, check.Namespace, check.Name, check.LocalReady, healthy)
}
