package journal

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// withDamper runs a Damper in a synctest bubble. lines returns the lines that the Damper has written since the last
// call.
func withDamper(t *testing.T, do func(d *Damper, lines func() []string)) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		d := NewDamper(slog.New(slog.NewTextHandler(&out, nil)))
		do(d, func() []string {
			synctest.Wait()
			d.mu.Lock()
			defer d.mu.Unlock()
			text := strings.TrimSpace(out.String())
			out.Reset()
			if text == "" {
				return nil
			}
			return strings.Split(text, "\n")
		})
	})
}

// flip logs that a Service disappears (if i is even) or reappears (if i is odd).
func flip(d *Damper, i int, name string) {
	d.Log(name, slog.LevelInfo, "id", []string{"went", "came"}[i%2], "service", name)
}

func TestDamperLogsFlappingHourly(t *testing.T) {
	withDamper(t, func(d *Damper, lines func() []string) {
		for i := range 7 {
			flip(d, i, "a/b")
			time.Sleep(time.Minute)
		}
		flip(d, 0, "a/c")
		if got := lines(); len(got) != 8 || !strings.Contains(got[6], "too often") || !strings.Contains(got[7], "a/c") {
			t.Errorf("three times there and back, and one more: %q", got)
		}
		for i := range 24 * 60 * 20 {
			flip(d, i, "a/b")
			time.Sleep(3 * time.Second)
		}
		if got := lines(); len(got) < 23 || len(got) > 24 || !strings.Contains(got[0], "changes=") {
			t.Errorf("%d lines in a day: %q", len(got), got)
		}
		time.Sleep(calmTime + 2*reviewPeriod)
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], "msg=came message_id=id service=a/b changes=") {
			t.Errorf("the state that stays: %q", got)
		}
		time.Sleep(damping)
		flip(d, 0, "a/b")
		if got := lines(); len(got) != 1 {
			t.Errorf("an hour later: %q", got)
		}
	})
}

func TestDamperLogsSlowChanges(t *testing.T) {
	withDamper(t, func(d *Damper, lines func() []string) {
		for i := range 100 {
			flip(d, i, "a/b")
			time.Sleep(11 * time.Minute)
		}
		if got := lines(); len(got) != 100 || strings.Contains(strings.Join(got, "\n"), "changes") {
			t.Errorf("%d lines for 100 changes: %q", len(got), got)
		}
	})
}

func TestDamperSummarizesManyChanges(t *testing.T) {
	withDamper(t, func(d *Damper, lines func() []string) {
		for i := range 1000 {
			flip(d, i, fmt.Sprint("a/", i))
		}
		if got := lines(); len(got) != maxLines || len(d.histories) != maxLines {
			t.Errorf("at once %d lines, %d things", len(got), len(d.histories))
		}
		time.Sleep(2 * reviewPeriod)
		if got := lines(); len(got) != 1 || !strings.Contains(got[0], "came: 490, went: 490") {
			t.Errorf("after a while: %q", got)
		}
		time.Sleep(2 * damping)
		if got := lines(); len(got) != 0 || len(d.histories) != 0 || d.waiting {
			t.Errorf("in the end: %q, %d things", got, len(d.histories))
		}
	})
}

// panickingHandler panics once, when it handles the given message.
type panickingHandler struct {
	slog.Handler
	message string
}

func (h *panickingHandler) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == h.message {
		h.message = ""
		panic("on purpose")
	}
	return h.Handler.Handle(ctx, r)
}

// A panic while the Damper writes a summary does not end the process. The Damper logs the panic, and writes the next
// summary.
func TestDamperContinuesAfterPanic(t *testing.T) {
	const summary = "too many state changes, omitting log lines"
	withDamper(t, func(d *Damper, lines func() []string) {
		d.log = slog.New(&panickingHandler{d.log.Handler(), summary})
		for _, want := range []string{"cannot write the summary of omitted log lines", summary} {
			for i := range 2 * maxLines {
				flip(d, i, fmt.Sprint("a/", i))
			}
			lines()
			time.Sleep(2 * reviewPeriod)
			if got := lines(); len(got) != 1 || !strings.Contains(got[0], want) {
				t.Errorf("%q, want one line with %q", got, want)
			}
		}
	})
}
