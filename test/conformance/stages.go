package conformance

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"

	"edgeway/daemon/sdunit"
	"edgeway/proxiers"
	"edgeway/proxiers/localnodeport"
)

// stages is a Proxier that runs a backend and then the followers that affect how the kernel forwards connections, in
// the same order as the daemon.
type stages []proxiers.Proxier

func (b Backend) all() []proxiers.Component {
	return append([]proxiers.Component{b.Component}, b.Followers...)
}

func (b Backend) start(ctx context.Context, opts proxiers.Env) (stages, error) {
	var s stages
	for _, c := range b.all() {
		p, err := c.New(ctx, opts)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("%s: new instance: %w", c.Name, err), s.Close())
		}
		s = append(s, p)
	}
	return s, nil
}

func (b Backend) cleanUp(ctx context.Context, opts proxiers.Env) error {
	for _, c := range slices.Backward(b.all()) {
		if c.Cleanup == nil {
			continue
		}
		if err := c.Cleanup(ctx, opts); err != nil {
			return fmt.Errorf("%s: cleanup: %w", c.Name, err)
		}
	}
	return nil
}

func (s stages) Apply(ctx context.Context, change proxiers.Change) error {
	for _, stage := range s {
		if err := stage.Apply(ctx, change); err != nil {
			return err
		}
	}
	return nil
}

func (s stages) Close() error {
	var errs []error
	for _, stage := range s {
		errs = append(errs, stage.Close())
	}
	return errors.Join(errs...)
}

// sockets keeps the listening sockets of a stopped backend's followers open for the followers of the next backend, as
// the daemon does.
type sockets struct {
	*sdunit.Sockets
	mu   sync.Mutex
	open map[netip.AddrPort]bool
}

func newSockets(t *testing.T) *sockets {
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	return &sockets{Sockets: sdunit.NewSockets(sdunit.NewManager(logger), nil, logger), open: map[netip.AddrPort]bool{}}
}

func (s *sockets) Listen(at netip.AddrPort) (*os.File, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[at] = true
	return s.Sockets.Listen(at)
}

func (s *sockets) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.open {
		s.Release(at)
	}
	clear(s.open)
}

func (s *suite) follow(opts proxiers.Env) stages {
	return stages{localnodeport.New(localnodeport.Options{
		Logger: opts.Logger, Sockets: s.sockets, OnPanic: func(err error) { panic(err) },
	})}
}
