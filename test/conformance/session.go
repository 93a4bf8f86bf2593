package conformance

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// applyTimeout is the timeout of one Apply, as in the daemon.
const applyTimeout = 30 * time.Second

// session holds a running backend, the backend's followers, and the plan that they have applied.
type session struct {
	*suite
	proxier proxiers.Proxier
	plan    *plan.Plan
	// drift receives the reasons that the backend passes to Env.Drift.
	drift chan string
}

func (s *suite) start(t *testing.T) *session {
	t.Helper()
	ses := &session{suite: s, drift: make(chan string, 100)}
	opts := ses.options(t)
	p, err := s.backend.start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	ses.proxier = append(p, s.follow(opts)...)
	return ses
}

// startClean starts the backend on a clean host, and registers a cleanup function that stops the backend.
func (s *suite) startClean(t *testing.T) *session {
	t.Helper()
	s.clean(t)
	ses := s.start(t)
	t.Cleanup(func() {
		if err := ses.proxier.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		s.clean(t)
	})
	return ses
}

func (s *suite) clean(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), paced(applyTimeout))
	defer cancel()
	if err := s.backend.cleanUp(ctx, s.options(t)); err != nil {
		t.Fatal(err)
	}
	s.sockets.closeAll()
	if err := s.world.Node.FlushConntrack(); err != nil {
		t.Fatalf("conntrack: %v", err)
	}
}

func (s *suite) options(t *testing.T) proxiers.Env {
	opts := silentEnv()
	opts.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	return opts
}

func (ses *session) options(t *testing.T) proxiers.Env {
	opts := ses.suite.options(t)
	opts.Drift = func(reason string) {
		select {
		case ses.drift <- reason:
		default: // a hundred reasons are enough
		}
	}
	return opts
}

// apply changes the backend's plan from prev, the plan that the backend has already applied, to next. If prev is nil,
// apply performs a full sync.
func (ses *session) apply(t *testing.T, prev, next *plan.Plan) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), paced(applyTimeout))
	defer cancel()
	if err := ses.proxier.Apply(ctx, proxiers.NewChange(prev, next)); err != nil {
		t.Fatalf("applying plan %d: %v", next.Generation, err)
	}
	ses.plan = next
}

func (ses *session) sync(t *testing.T, sp *spec) *plan.Plan {
	t.Helper()
	next, err := sp.compile(ses.world.lab(), ses.plan)
	if err != nil {
		t.Fatal(err)
	}
	ses.apply(t, ses.plan, next)
	return next
}

func (ses *session) syncText(t *testing.T, text string) *plan.Plan {
	t.Helper()
	sp, err := parseSpec(text)
	if err != nil {
		t.Fatal(err)
	}
	return ses.sync(t, sp)
}

func (ses *session) dump(t *testing.T) string {
	t.Helper()
	text, err := ses.backend.Dump(t.Context())
	if err != nil {
		t.Fatalf("%s: dump: %v", ses.backend.Name, err)
	}
	return text
}

// mustAgree reports a test failure for every row whose result differs from the result that the plan p requires. Each
// failure message begins with the arguments in context.
func (s *suite) mustAgree(t *testing.T, p *plan.Plan, rows []row, context ...any) {
	t.Helper()
	differences := s.compare(p, rows)
	for i, d := range differences {
		differences[i] = fmt.Sprint(context...) + ": " + d
	}
	fail(t, differences)
}

func fail(t *testing.T, problems []string) {
	t.Helper()
	const shown = 10
	for i, p := range problems {
		if i == shown {
			t.Errorf("… and %d more", len(problems)-shown)
			break
		}
		t.Error(p)
	}
}
