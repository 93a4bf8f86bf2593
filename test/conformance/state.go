package conformance

import (
	"fmt"
	"testing"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

func testState(t *testing.T, s *suite) {
	t.Run("applying the same plan again changes nothing", func(t *testing.T) { testIdempotence(t, s) })
	t.Run("partial syncs end in the same state as a full sync", func(t *testing.T) { testPartialEqualsFull(t, s) })
	t.Run("cleanup restores the host's original state", func(t *testing.T) { testCleanup(t, s) })
	t.Run("the host still forwards connections after Close", func(t *testing.T) { testClose(t, s) })
	t.Run("New and Probe change nothing", func(t *testing.T) { testNoSideEffects(t, s) })
}

func testIdempotence(t *testing.T, s *suite) {
	ses := s.startClean(t)
	c := newChanger(1)
	p := ses.sync(t, c.spec)
	first := ses.dump(t)
	if first == "" {
		t.Fatal("the dump of a host with Services is empty")
	}
	for _, again := range []struct {
		name string
		prev *plan.Plan
	}{{"partial", p}, {"full", nil}, {"full, once more", nil}} {
		ses.apply(t, again.prev, p)
		if now := ses.dump(t); now != first {
			t.Errorf("applying the same plan again (%s) changed the state: %s", again.name, firstDifference(first, now))
		}
	}
}

// testPartialEqualsFull applies random changes. After each change, the test opens connections to current and removed
// destinations. At the end, the kernel's state must be the same as with a new backend on a clean host.
func testPartialEqualsFull(t *testing.T, s *suite) {
	const steps, sampled = 10, 60
	for seed := range uint64(scaleDown(3, 1)) {
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			ses := s.startClean(t)
			c := newChanger(seed)
			p := ses.sync(t, c.spec)
			for n := range steps {
				old := p
				c.step()
				p = ses.sync(t, c.spec)
				changed, removed := plan.Diff(old, p)
				rows := append(c.sample(rowsOf(p, append(changed, removed...)), sampled/2),
					c.sample(rowsOf(p, p.Services), sampled/2)...)
				s.mustAgree(t, p, rows, "seed ", seed, ", step ", n)
			}
			s.mustEqualFresh(t, ses)
		})
	}
}

// mustEqualFresh fails the test unless the session and a new session on a clean host lead to the same kernel state.
func (s *suite) mustEqualFresh(t *testing.T, ses *session) {
	t.Helper()
	walked, p := ses.dump(t), ses.plan
	full := s.startClean(t)
	full.apply(t, nil, p)
	if fresh := full.dump(t); walked != fresh {
		t.Errorf("partial syncs and a full sync lead to different states: %s", firstDifference(walked, fresh))
	}
}

func testCleanup(t *testing.T, s *suite) {
	s.clean(t)
	s.foreign(t)
	before := s.hostState(t)
	ses := s.start(t)
	c := newChanger(2)
	for range 3 {
		ses.sync(t, c.spec)
		c.step()
	}
	if s.hostState(t) == before {
		t.Error("the host's state does not contain the Services")
	}
	if err := ses.proxier.Close(); err != nil {
		t.Error(err)
	}
	for _, when := range []string{"cleanup", "cleanup of a clean host"} {
		s.clean(t)
		if after := s.hostState(t); after != before {
			t.Errorf("%s: the host's state has changed: %s", when, firstDifference(before, after))
		}
	}
}

func testClose(t *testing.T, s *suite) {
	ses := s.startClean(t)
	c := newChanger(3)
	p := ses.sync(t, c.spec)
	before := ses.dump(t)
	if err := ses.proxier.Close(); err != nil {
		t.Fatal(err)
	}
	if after := ses.dump(t); after != before {
		t.Errorf("Close changed the state: %s", firstDifference(before, after))
	}
	s.mustAgree(t, p, c.sample(passing(p, rowsOf(p, p.Services)), 60), "after close")
	ses.proxier = s.start(t).proxier // the session's cleanup closes the new backend
}

func testNoSideEffects(t *testing.T, s *suite) {
	s.clean(t)
	before := s.hostState(t)
	for _, c := range s.backend.all() {
		if err := c.Probe(t.Context()); err != nil {
			t.Error(err)
		}
	}
	var p proxiers.Proxier = s.start(t).proxier
	if after := s.hostState(t); after != before {
		t.Errorf("the host changed: %s", firstDifference(before, after))
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
