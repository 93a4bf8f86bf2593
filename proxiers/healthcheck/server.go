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

// closeTimeout is how long requests that are being answered may still take.
const closeTimeout = time.Second

// server answers on one address and port for one Service at a time.
type server struct {
	listener net.Listener
	http     *http.Server
	check    atomic.Pointer[plan.HealthCheck]
	// stopped runs what closes the connections.
	stopped func(func())
}

// kept is a listener that http.Server (Go 1.26) cannot close: it would close it in a panic of Serve, too, and the
// server that starts again would have none.
type kept struct{ net.Listener }

func (kept) Close() error { return nil }

// serve answers on the listener until close.
func (p *Proxier) serve(listener net.Listener, check *plan.HealthCheck) *server {
	s := &server{listener: listener}
	s.check.Store(check)
	s.stopped = func(f func()) { p.opts.Contain.Go(&p.running, "end of a health check server", f) }
	s.http = httpbound.Server(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		answer(w, s.check.Load(), p.opts.Healthy())
	}), p.opts.Logger)
	s.http.DisableGeneralOptionsHandler = true // any method has the same answer, "OPTIONS *" too
	p.opts.Contain.Go(&p.running, "health check server", func() {
		err := s.http.Serve(p.limit.Listener(kept{listener}))
		if !errors.Is(err, http.ErrServerClosed) && !errors.Is(err, net.ErrClosed) {
			p.opts.Logger.Error("health check server stopped", "address", listener.Addr().String(), "error", err)
		}
	})
	return s
}

// close frees the port at once; requests that are being answered get a moment more.
func (s *server) close() {
	_ = s.listener.Close() // only fails when it is closed
	s.stopped(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if s.http.Shutdown(ctx) != nil {
			_ = s.http.Close() // requests that are cut here were given enough time
		}
	})
}

// answer writes what kube-proxy v1.36 writes.
func answer(w http.ResponseWriter, check *plan.HealthCheck, healthy bool) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(check.LocalReady))
	if check.LocalReady > 0 && healthy {
		w.WriteHeader(http.StatusOK)
	} else {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	// An error here means that the client has gone.
	_, _ = fmt.Fprintf(w, `{
	"service": {
		"namespace": %q,
		"name": %q
	},
	"localEndpoints": %d,
	"serviceProxyHealthy": %t
}`, check.Namespace, check.Name, check.LocalReady, healthy)
}
