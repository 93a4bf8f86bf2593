package endpointcheck

import (
	"context"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/daemon/journal"
	"edgeway/proxiers/contain"
)

// A panic during a check does not affect the verdict on the endpoint. After a pause, the checks continue with the
// same targets.
func TestChecksContinueAfterPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &network{faults: map[netip.AddrPort]error{}, dialled: map[netip.AddrPort]int{}}
		n.set(unix.ECONNREFUSED, at(1))
		logger := slog.New(slog.NewTextHandler(t.Output(), nil))
		c, parts := New(journal.NewDamper(logger)), contain.New(logger)
		c.Configure(defaults)
		var panicked atomic.Bool
		c.dial = func(ctx context.Context, to netip.AddrPort) error {
			if to == at(0) && !panicked.Swap(true) {
				panic("on purpose")
			}
			return n.dial(ctx, to)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- parts.Run(ctx, "checks", c.Run) }()
		c.UpdateTargets(Targets{All: true, Add: many(3)})
		time.Sleep(contain.Pause + 2*maxDeadTime)
		synctest.Wait()
		if faults := parts.Faults(); len(faults) != 1 ||
			!strings.Contains(faults[0].Message, "this part of Edgeway 1 times") {
			t.Errorf("faults %+v, want one panic", faults)
		}
		if dead := c.DeadEndpoints(); dead.Len() != 1 || !dead.Has(at(1)) || n.count(at(0)) == 0 {
			t.Errorf("dead %v after %d checks of the other endpoint", dead.Faults, n.count(at(0)))
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
