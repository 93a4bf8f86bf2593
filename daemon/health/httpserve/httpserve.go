// Package httpserve runs the daemon's small HTTP servers, one address each. It retries an address that
// cannot be bound: a port in use, or an address that the host does not have yet, must not stop the daemon.
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

// RetryAfter is the time between two attempts to bind, as kube-proxy's.
const RetryAfter = 5 * time.Second

// maxConns is the number of connections that a server holds: some hundred clients, in 8 MB.
const maxConns = 256

// Server is what Run serves.
type Server struct {
	// Name tells the servers apart in the log.
	Name string
	// Addr is "address:port"; without an address, all of both families.
	Addr    string
	Handler http.Handler
	// WebConfig is the path of a web configuration file of the Prometheus exporters, for TLS and
	// passwords; it is read again for each connection. Empty: plain HTTP for everyone.
	WebConfig string
	Logger    *slog.Logger
	// Down is told why the server does not serve, and nil when it does; it may be nil.
	Down func(error)
}

// Run serves until ctx ends.
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
	if s.Down != nil {
		s.Down(down)
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
