// Package httpserve runs the daemon's small HTTP servers. Each server listens on one address. A server that cannot bind
// its address retries, because a port in use or a missing address must not stop the daemon.
package httpserve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"edgeway/proxiers/healthcheck/httpbound"
)

// RetryAfter is the delay between two attempts to bind the address, as in kube-proxy.
const RetryAfter = 5 * time.Second

// maxConns is the maximum number of connections to a server. A few hundred clients use 8 MB of memory.
const maxConns = 256

// Server configures an HTTP server.
type Server struct {
	// Name identifies the server in the log.
	Name string
	// Addr is "address:port", or ":port" for all addresses of both families.
	Addr    string
	Handler http.Handler
	// WebConfig is the path of a Prometheus web configuration file, which configures TLS and passwords. The server
	// rereads the web configuration file for each connection. If WebConfig is empty, the server uses plain HTTP without
	// passwords.
	WebConfig string
	Logger    *slog.Logger
	// OnStateChange receives the reason when the server stops serving, and nil when the server starts serving.
	// OnStateChange may be nil.
	OnStateChange func(error)
}

// Run serves requests until ctx is done.
func (s Server) Run(ctx context.Context) {
	log := s.Logger.With("server", s.Name, "address", s.Addr)
	failed := false
	for ctx.Err() == nil {
		err := s.serve(ctx, log)
		if ctx.Err() != nil {
			return
		}
		if !failed {
			log.Error("server is down, retrying", "error", err)
		}
		failed = true
		s.tell(err)
		select {
		case <-ctx.Done():
		case <-time.After(RetryAfter):
		}
	}
}

func (s Server) tell(down error) {
	if s.OnStateChange != nil {
		s.OnStateChange(down)
	}
}

func (s Server) serve(ctx context.Context, log *slog.Logger) error {
	var lc net.ListenConfig
	listener, err := lc.Listen(ctx, "tcp", s.Addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	s.tell(nil)
	log.Info("server listening", "bound", listener.Addr().String(), "web_config", s.WebConfig)
	listener = httpbound.NewLimit(maxConns).Listener(listener)
	server := httpbound.Server(s.Handler, log)
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err = serve(listener, server, s.WebConfig, log)
	if !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
