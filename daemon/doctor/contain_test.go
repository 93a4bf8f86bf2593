package doctor

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/proxiers/contain"
)

// After a panic in one run, the Monitor continues and finds new faults in the next run.
func TestMonitorContinuesAfterPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, f := testHost()
		logger, looks := slog.New(slog.NewTextHandler(t.Output(), nil)), 0
		r := NewMonitor(MonitorOptions{Host: func() *Host {
			if looks++; looks == 1 {
				panic("on purpose")
			}
			return h
		}})
		parts := contain.New(logger)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- parts.Run(ctx, "doctor", func(ctx context.Context) error {
				r.Run(ctx)
				return nil
			})
		}()
		r.SignalPlan()
		time.Sleep(contain.Pause / 2)
		f.edit(func() { delete(f.hops, "0.0.0.0/0") })
		time.Sleep(contain.Pause + 2*changeDelay)
		synctest.Wait()
		if looks < 2 || len(r.Faults()) == 0 || len(parts.Faults()) != 1 {
			t.Errorf("%d looks, problems %q, faults %+v", looks, names(r.Faults()), parts.Faults())
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
