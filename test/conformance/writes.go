package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// maxWrittenPercent is the maximum share of all objects, in percent, that a partial sync may write on average after a
// change to one of fifty Services. Deleted objects count as written, and so do the chains that Services share in the
// iptables backend.
const maxWrittenPercent = 8

func testWrites(t *testing.T, s *suite) {
	if problem := s.measurePartialWrites(t, s.backend.start, 2*len(serviceChanges)); problem != "" {
		t.Error(problem)
	}
}

func testPlantedRewrites(t *testing.T, s *suite) {
	problem := s.measurePartialWrites(t, func(ctx context.Context, opts proxiers.Env) (stages, error) {
		honest, err := s.backend.start(ctx, opts)
		return stages{rewriter{honest, s.backend, opts}}, err
	}, 3)
	if problem == "" {
		t.Error("the suite did not notice")
	}
}

type rewriter struct {
	proxiers.Proxier
	backend Backend
	opts    proxiers.Env
}

func (r rewriter) Apply(ctx context.Context, change proxiers.Change) error {
	return errors.Join(r.backend.cleanUp(ctx, r.opts), r.Proxier.Apply(ctx, proxiers.NewChange(nil, change.Next)))
}

// measurePartialWrites makes the given number of changes to a set of fifty Services, and applies each change in a
// partial sync. measurePartialWrites returns a description of the problem if the partial syncs wrote no objects, or
// more than maxWrittenPercent of the objects that full syncs would have written, and "" otherwise.
func (s *suite) measurePartialWrites(t *testing.T, start func(context.Context, proxiers.Env) (stages, error),
	changes int,
) (problem string) {
	t.Helper()
	s.clean(t)
	t.Cleanup(func() { s.clean(t) })
	m, err := startMeter(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.stop() }()
	p, err := start(t.Context(), s.options(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = p.Close() }()
	c := newSequenceChanger()
	c.addSome(50 - len(c.spec.services))
	var prev *plan.Plan
	apply := func() int {
		next, err := c.spec.compile(imaginaryLab(), prev)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := m.countWrites(); err != nil {
			t.Fatal(err)
		}
		if err := p.Apply(t.Context(), proxiers.NewChange(prev, next)); err != nil {
			t.Fatal(err)
		}
		prev = next
		n, err := m.countWrites()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	total, written := changes*apply(), 0
	for n := range changes {
		c.change(serviceChanges[n%len(serviceChanges)])
		written += apply()
	}
	t.Logf("the partial syncs wrote %s objects in %d changes; full syncs would have written %s",
		thousands(written), changes, thousands(total))
	if written == 0 || 100*written > maxWrittenPercent*total {
		return fmt.Sprintf("partial syncs wrote %d of %d objects, want at least one object and at most %d %%",
			written, total, maxWrittenPercent)
	}
	return ""
}
