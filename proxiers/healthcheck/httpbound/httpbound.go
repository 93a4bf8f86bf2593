// Package httpbound creates HTTP servers that untrusted clients may reach. The servers limit the duration and size of
// requests, and the number of connections.
package httpbound

import (
	"log/slog"
	"net/http"
	"net/netip"
	"time"
)

const (
	// requestTimeout is the time limit for reading a request, including the wait for its first byte.
	requestTimeout = 5 * time.Second
	// responseTimeout is the time limit for writing a response. For a profile, net/http/pprof extends responseTimeout
	// by the profile's duration.
	responseTimeout = 10 * time.Second
	// idleTimeout is longer than the usual interval between a load balancer's health checks.
	idleTimeout = time.Minute
	// maxHeader exceeds the size of any load balancer's request header. The limit that net/http (Go 1.26) enforces is
	// 4 KiB higher than maxHeader.
	maxHeader = 4 << 10
)

// Server returns a server that does not read request bodies. The caller must also wrap the listener with
// Limit.Listener.
func Server(handler http.Handler, logger *slog.Logger) *http.Server {
	return &http.Server{
		Handler:        ignoreBodies(handler),
		ReadTimeout:    requestTimeout,
		WriteTimeout:   responseTimeout,
		IdleTimeout:    idleTimeout,
		MaxHeaderBytes: maxHeader,
		ErrorLog:       slog.NewLogLogger(logger.Handler(), slog.LevelDebug),
	}
}

// ignoreBodies closes the connection after the response to a request with a body. If the connection stayed open,
// net/http would wait for the body before reading the next request.
func ignoreBodies(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // otherwise ReadTimeout would apply
		}
		next.ServeHTTP(w, r)
	})
}

// FromLoopback reports whether the client has a loopback address, which means that the client is on this host.
func FromLoopback(r *http.Request) bool {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && client.Addr().Unmap().IsLoopback()
}
