// Package control connects Edgeway's commands to the daemon with JSON over HTTP, through a Unix socket that only its
// owner and its group can use. Members of the group can query the daemon. Only root and the owner can reload the
// daemon.
//
//   - GET /v1/status
//   - GET /v1/plan[?service=NAMESPACE/NAME]
//   - GET /v1/explain?src=ADDR[@INTERFACE]&dst=ADDR:PORT[&proto=tcp|udp|sctp]
//   - GET /v1/services[?only=NAMESPACE|NAMESPACE/NAME]
//   - GET /v1/facts: the facts that edgeway doctor needs
//   - POST /v1/reload
//
// The response to a failed request is {"error": "..."} with an HTTP status of 400 or higher. After status 503, the
// client retries the request. The commands print each response as text (text_*.go) that starts with a verdict.
package control

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"edgeway/daemon/doctor"
	"edgeway/daemon/endpointcheck"
	"edgeway/daemon/pipeline"
	"edgeway/daemon/source"
	"edgeway/proxiers"
	"edgeway/proxiers/contain"
	"edgeway/proxiers/healthcheck/httpbound"
	"edgeway/proxiers/plan"
)

// Options holds the functions that compute the responses. The server may call the functions in Options from any
// goroutine.
type Options struct {
	// Socket is the path of the Unix socket. A lock file next to the socket, with the suffix ".lock", remains after the
	// daemon exits.
	Socket string
	Logger *slog.Logger
	Status func() Status
	State  func() pipeline.State
	Facts  func() doctor.Facts
	Lookups
	// See ServiceInput for Position and DeadEndpoints.
	Position      func(source.Key) string
	DeadEndpoints func() *endpointcheck.DeadEndpoints
	// Connections returns the number of new connections for each Service port and kind of frontend. Connections returns
	// nil if Edgeway does not count connections or cannot read the counts.
	Connections func() map[proxiers.Frontends]uint64
	// Reload returns nil if the new configuration is valid, or the reason for rejecting it.
	Reload func(context.Context) error
}

// Server responds to requests from Edgeway's commands.
type Server struct {
	opts   Options
	socket *socket
	limits limits

	// ownerTurn and groupTurn each admit one request for a large response at a time.
	ownerTurn, groupTurn chan struct{}
}

// Listen acquires the socket, or fails with ErrRunning if another daemon owns it. Callers must call Listen before they
// change the host, so that only one daemon programs it. After Listen succeeds, the caller must call Run or Close.
func Listen(opts Options) (*Server, error) {
	s, err := bind(opts.Socket)
	if err != nil {
		return nil, err
	}
	return newServer(opts, s), nil
}

func newServer(opts Options, s *socket) *Server {
	return &Server{
		opts: opts, socket: s, limits: defaultLimits,
		ownerTurn: make(chan struct{}, 1), groupTurn: make(chan struct{}, 1),
	}
}

// Close releases the socket without serving requests.
func (s *Server) Close() error { return s.socket.Close() }

// Run serves requests until ctx is done, waits for unfinished responses, and releases the socket.
func (s *Server) Run(ctx context.Context) error {
	server := httpbound.Server(s.handler(), s.opts.Logger)
	server.ConnContext = withPeer
	// A reload can take minutes on a slow single-board computer. If ReadTimeout were set, net/http (Go 1.26) would
	// cancel the context of a reload request when the timeout expired.
	server.ReadTimeout, server.WriteTimeout = 0, 0
	server.ReadHeaderTimeout = s.limits.headerTimeout
	server.SetKeepAlivesEnabled(false)
	finished := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(finished)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = server.Shutdown(grace)
	})
	err := server.Serve(httpbound.NewLimit(s.limits.maxConnections).Listener(s.socket))
	if !stop() {
		<-finished
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("control socket: %w", err)
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", s.answer(func(*http.Request) (any, error) { return s.opts.Status(), nil }))
	mux.HandleFunc("GET /v1/facts", s.answerLarge(func(*http.Request) (any, error) { return s.opts.Facts(), nil }))
	mux.HandleFunc("GET /v1/plan", s.answerLarge(s.plan))
	mux.HandleFunc("GET /v1/explain", s.answer(s.explain))
	mux.HandleFunc("GET /v1/services", s.answerLarge(s.services))
	mux.HandleFunc("POST /v1/reload", s.answer(func(r *http.Request) (any, error) {
		if !isOwner(r.Context()) {
			return nil, errNotOwner
		}
		return struct{}{}, s.opts.Reload(r.Context())
	}))
	return mux
}

type failure struct {
	Error string `json:"error"`
}

func (s *Server) answer(f func(*http.Request) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var value any
		err := contain.Call(func() (err error) {
			value, err = f(r)
			return err
		})
		if contain.IsPanic(err) {
			s.opts.Logger.Error("request panicked", "path", r.URL.Path, "error", err, "stack", contain.Stack(err))
		}
		code := http.StatusOK
		if err != nil {
			value, code = failure{err.Error()}, http.StatusUnprocessableEntity
			if errors.Is(err, ErrArgument) {
				code = http.StatusBadRequest
			}
		}
		s.write(w, code, value)
	}
}

// ErrArgument means that the arguments of a request are malformed or ambiguous.
var ErrArgument = errors.New("argument")

// argumentError makes an error match ErrArgument without adding ErrArgument's text to the message.
type argumentError struct{ error }

// Is reports whether target is ErrArgument.
func (argumentError) Is(target error) bool { return target == ErrArgument }

var errNoPlan = errors.New("there is no plan yet: the sources have not listed all objects; see edgeway status")

// currentPlan returns the applied plan or, before the first sync, the plan that Edgeway will apply.
func currentPlan(s *pipeline.State) (p *plan.Plan, ok bool, err error) {
	switch {
	case s.AppliedPlan != nil:
		return s.AppliedPlan, true, nil
	case s.Plan != nil:
		return s.Plan, false, nil
	}
	return nil, false, errNoPlan
}

func (s *Server) plan(r *http.Request) (any, error) {
	state := s.opts.State()
	p, ok, err := currentPlan(&state)
	if err != nil {
		return nil, err
	}
	view := NewPlan(p, ok, state.Problems())
	if name := r.URL.Query().Get("service"); name != "" {
		return view.Filter(name)
	}
	return view, nil
}

func (s *Server) services(r *http.Request) (any, error) {
	list, err := NewServiceList(ServiceInput{
		State: s.opts.State(), Position: s.opts.Position,
		DeadEndpoints: s.opts.DeadEndpoints(), Connections: s.opts.Connections(),
	})
	if only := r.URL.Query().Get("only"); err == nil && only != "" {
		return list.Filter(only)
	}
	return list, err
}

func (s *Server) explain(r *http.Request) (any, error) {
	subject, q := Explainer{State: s.opts.State(), Lookups: s.opts.Lookups}, r.URL.Query()
	return subject.Explain(q.Get("src"), q.Get("dst"), q.Get("proto"))
}
