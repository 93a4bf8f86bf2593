package sdunit

import (
	"context"
	"testing"
	"testing/synctest"

	"edgeway/proxiers/contain"
	"edgeway/test/sdtest"
)

// A panic while the Notifier reads the daemon's state delays the notifications but does not stop them. After a pause,
// the Notifier sends READY=1.
func TestNotifierContinuesAfterPanic(t *testing.T) {
	m := sdtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		logger, _ := newLog()
		n, h := NewNotifier(NewManager(logger), logger), newHost()
		h.set(withServices(1))
		parts, subject, looks := contain.New(logger), h.subject(), 0
		view := subject.View
		subject.View = func() View {
			if looks++; looks == 1 {
				panic("on purpose")
			}
			return view()
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- parts.Run(ctx, "service manager", func(ctx context.Context) error {
				n.Run(ctx, subject)
				return nil
			})
		}()
		if got := count(advance(m, contain.Pause/2), "READY=1"); got != 0 {
			t.Errorf("ready %d times during the pause", got)
		}
		if got := count(advance(m, contain.Pause), "READY=1"); got != 1 {
			t.Errorf("ready %d times after the pause, want once", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
