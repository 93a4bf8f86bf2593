// Package httpbound creates HTTP servers that untrusted clients may reach. The servers limit the duration, size and
// number of the requests and connections of a client.
package httpbound

import (
	"log/slog"
	"net/http"
	"net/netip"
	"time"
)

const (
	// requestTimeout limits the time to read a request, including the wait for its first byte.
	requestTimeout = 5 * time.Second
	// answerTimeout limits the time to write a response. net/http/pprof extends the timeout by the duration of a
	// profile.
	answerTimeout = 10 * time.Second
	// idleTimeout is longer than the usual interval between a load balancer's health checks.
	idleTimeout = time.Minute
	// maxHeader is larger than the header of any load balancer's request. net/http (Go 1.26) reads up to 4 KiB more.
	maxHeader = 4 << 10
)

// Server returns a server that ignores the body of requests. The caller must also wrap its listener with
// Limit.Listener.
func Server(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:        bodiless(handler),
		ReadTimeout:    requestTimeout,
		WriteTimeout:   answerTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

// bodiless responds to a request with a body immediately and closes the connection. Otherwise, net/http would wait for
// the body before it reads the next request.
func bodiless(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // otherwise ReadTimeout applies
		}
		next.ServeHTTP(w, r)
	})
}

// FromHere reports whether the client is on this host and connected over the loopback interface.
func FromHere(r *http.Request) bool {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && client.Addr().Unmap().IsLoopback()
}
