package contain

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func testParts(t *testing.T) *Parts {
	return New(slog.New(slog.NewTextHandler(t.Output(), nil)))
}

func TestCall(t *testing.T) {
	other := errors.New("other")
	if err := Call(func() error { return other }); !errors.Is(err, other) || IsPanic(err) {
		t.Errorf("error %v, want the function's own", err)
	}
	err := Call(func() error {
		var list []int
		_ = list[len(list)]
		return nil
	})
	if !strings.HasPrefix(err.Error(), "panic at contain_test.go:") {
		t.Errorf("the error does not name the line: %v", err)
	}
	if !IsPanic(err) || strings.Contains(err.Error(), "\n") || !strings.Contains(Stack(err), "TestCall") {
		t.Errorf("error %v with stack %q", err, Stack(err))
	}
	if err := Call(func() error { panic("one\ntwo " + strings.Repeat("x", 1000)) }); strings.Contains(err.Error(),
		"\n") || len(err.Error()) > 400 {
		t.Errorf("the error is no short line: %q", err)
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, start, runs := testParts(t), time.Now(), 0
		err := p.Run(t.Context(), "a", func(context.Context) error {
			runs++
			panic("always")
		})
		if runs != panicLimit || time.Since(start) != (panicLimit-1)*Pause || !IsPanic(err) {
			t.Errorf("%d runs in %s, error %v", runs, time.Since(start), err)
		}
		select {
		case failed := <-p.Failed():
			if !IsPanic(failed) {
				t.Errorf("failed with %v", failed)
			}
		default:
			t.Error("the daemon is not told to end")
		}
	})
}

// A component may panic twice within ten minutes without ending the daemon. Parts counts each component's panics
// separately and reports a panic for ten minutes.
func TestRarePanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := testParts(t)
		for range 20 {
			for _, part := range []string{"b", "a"} {
				if err := p.Note(part, Call(func() error { panic("now and then") })); err != nil {
					t.Fatal(err)
				}
			}
			if faults := p.Faults(); len(faults) != 2 || faults[0].Object.Name != "a" ||
				!strings.HasSuffix(faults[0].Message, "now and then") {
				t.Fatalf("faults %v", faults)
			}
			time.Sleep(window/2 + time.Second)
		}
		time.Sleep(window / 2)
		if faults := p.Faults(); len(faults) != 0 {
			t.Errorf("faults %v after ten minutes", faults)
		}
	})
}

// Loop calls again() before each restart, but not before the first run.
func TestLoopCallsAgainBeforeRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := ""
		testParts(t).Loop("a", func() {
			if calls += "run "; calls == "run " {
				panic("once")
			}
		}, func() { calls += "again " })
		if want := "run again run "; calls != want {
			t.Errorf("calls %q, want %q", calls, want)
		}
	})
}

func TestRunEndsWithContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		if err := testParts(t).Run(ctx, "a", func(context.Context) error { cancel(); panic("once") }); err != nil {
			t.Error(err)
		}
	})
}
