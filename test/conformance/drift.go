package conformance

import (
	"testing"
	"time"
)

// testDrift damages the backend's state. The backend must report drift, and a full sync must repair the state. The
// backend must not report its own changes as drift.
func testDrift(t *testing.T, s *suite) {
	if len(s.backend.Damages) == 0 {
		t.Fatalf("the backend %s defines no Damages", s.backend.Name)
	}
	for _, name := range sortedKeys(s.backend.Damages) {
		t.Run(name, func(t *testing.T) {
			ses := s.startClean(t)
			c := newChanger(5)
			p := ses.sync(t, c.spec)
			whole := ses.dump(t)
			if err := s.backend.Damages[name](t.Context()); err != nil {
				t.Fatal(err)
			}
			select {
			case reason := <-ses.drift:
				t.Logf("reason given: %s", reason)
			case <-time.After(responseTimeout):
				t.Fatal("the backend did not report drift")
			}
			ses.apply(t, nil, p)
			if repaired := ses.dump(t); repaired != whole {
				t.Errorf("a full sync did not repair the state: %s", firstDifference(whole, repaired))
			}
			s.mustAgree(t, p, c.sample(rowsOf(p, p.Services), 60), "after repair")
		})
	}
	t.Run("none from own changes", func(t *testing.T) {
		ses := s.startClean(t)
		s.foreign(t)
		c := newChanger(6)
		ses.sync(t, c.spec)
		for range 10 {
			c.step()
			ses.sync(t, c.spec)
		}
		ses.apply(t, nil, ses.plan)
		select {
		case reason := <-ses.drift:
			t.Errorf("the backend reported drift although no other program changed its state: %s", reason)
		case <-time.After(paced(500 * time.Millisecond)):
		}
	})
}
