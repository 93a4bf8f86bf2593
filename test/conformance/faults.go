package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

var errInjected = errors.New("injected fault")

// faultyProxier is a Proxier whose Apply fails in about one call in ten: before the first change, after the last
// change, or during the changes because the context expires.
type faultyProxier struct {
	proxiers.Proxier
	*rand.Rand
	faults int
}

func (f *faultyProxier) Apply(ctx context.Context, change proxiers.Change) error {
	if f.IntN(10) > 0 {
		return f.Proxier.Apply(ctx, change)
	}
	f.faults++
	switch f.IntN(3) {
	case 0:
		return errInjected
	case 1:
		return errors.Join(f.Proxier.Apply(ctx, change), errInjected)
	default:
		short, cancel := context.WithTimeout(ctx, paced(time.Duration(f.IntN(8000))*time.Microsecond))
		defer cancel()
		return f.Proxier.Apply(short, change)
	}
}

// testFaults applies random changes through a faulty backend. As in the daemon's pipeline, a full sync follows each
// failure. At the end, the kernel's state must be the same as after a full sync on a clean host.
func testFaults(t *testing.T, s *suite) {
	const sampled = 40
	steps := scaleDown(80, 40)
	ses := s.startClean(t)
	f := &faultyProxier{Proxier: ses.proxier, Rand: rand.New(rand.NewPCG(4, 0))}
	c := newChanger(4)
	var known, next *plan.Plan // the last plan that the backend applied without an error, or nil
	for n := range steps {
		if n > 0 {
			c.step()
		}
		var err error
		if next, err = c.spec.compile(s.world.lab(), next); err != nil {
			t.Fatal(err)
		}
		known = attempt(t, f, known, next)
		if known != nil && n%10 == 9 {
			s.mustAgree(t, next, c.sample(rowsOf(next, next.Services), sampled),
				fmt.Sprintf("step %d, after %d faults", n, f.faults))
		}
	}
	if f.faults < 3 {
		t.Fatalf("the test injected only %d faults", f.faults)
	}
	ses.apply(t, known, next)
	s.mustAgree(t, next, c.sample(rowsOf(next, next.Services), 200), "at the end")
	s.mustEqualFresh(t, ses)
	t.Logf("%d faults in %d steps", f.faults, steps)
}

func attempt(t *testing.T, f *faultyProxier, known, next *plan.Plan) *plan.Plan {
	ctx, cancel := context.WithTimeout(t.Context(), paced(applyTimeout))
	defer cancel()
	before := f.faults
	err := f.Apply(ctx, proxiers.NewChange(known, next))
	switch {
	case err == nil:
		return next
	case f.faults == before:
		t.Fatalf("Apply failed without an injected fault: %v", err)
	}
	return nil
}
