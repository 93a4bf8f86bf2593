package sim

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestDailyLogLines fails if the daemon logs too many lines per day, because an operator must be able to find a failure
// in the log at three in the morning.
func TestDailyLogLines(t *testing.T) {
	span := 24 * time.Hour
	if testing.Short() {
		span = 3 * time.Hour
	}
	made := newCredentials(t)
	for name, c := range map[string]struct {
		seed      uint64
		permanent bool
		every     time.Duration
		most      int
		do        func(s *simulation, svc *service)
	}{
		"an endpoint changes every minute": {1001, true, time.Minute, 20, func(s *simulation, svc *service) { svc.redraw(s.rand) }},
		"the only endpoint comes and goes": {1002, false, 3 * time.Second, 100, func(_ *simulation, svc *service) {
			if len(svc.endpoints) > 0 {
				svc.endpoints = nil
			} else {
				svc.endpoints = []endpoint{{index: 1, ready: true}}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := tempDir(t)
			synctest.Test(t, func(t *testing.T) {
				s := newSimulation(t, c.seed, dir, made)
				s.awaitRecovery()
				svc := newService(s.rand, apiNamespace, 100, c.permanent)
				for began := time.Now(); time.Since(began) < span; time.Sleep(c.every) {
					c.do(s, svc)
					s.putService(svc)
				}
				lines := s.logs.total()
				if t.Logf("%d lines: %v", lines, s.logs.count); lines > c.most {
					t.Errorf("%d lines, want at most %d:\n%s", lines, c.most, strings.Join(s.logs.lines, "\n"))
				}
				s.finish()
			})
		})
	}
}
