// Package httpbound makes HTTP servers that strangers may reach: what a client can make them hold is bounded in time,
// in size and in number.
package httpbound

import (
	"log/slog"
	"net/http"
	"net/netip"
	"time"
)

const (
	// requestTimeout bounds a request from its first byte to its last, and the wait for the first one.
	requestTimeout = 5 * time.Second
	// answerTimeout bounds an answer. The profiles of net/http/pprof add to it the time that they are asked for.
	answerTimeout = 10 * time.Second
	// idleTimeout is longer than the usual interval between two checks of a load balancer.
	idleTimeout = time.Minute
	// maxHeader is more than any probe sends; net/http (Go 1.26) reads 4 KiB beyond it.
	maxHeader = 4 << 10
)

// Server gives a server whose answers do not depend on a request's body. It still needs a Limit's listener.
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

// bodiless answers a request with a body at once and closes the connection. net/http would wait for the body, to read
// the next request after it.
func bodiless(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ContentLength != 0 {
			w.Header().Set("Connection", "close")
			_ = http.NewResponseController(w).SetReadDeadline(time.Now()) // without it the time-out of the server counts
		}
		next.ServeHTTP(w, r)
	})
}

// FromHere says that the client is on this host, and speaks over the loopback interface.
func FromHere(r *http.Request) bool {
	client, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && client.Addr().Unmap().IsLoopback()
}
