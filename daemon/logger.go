package daemon

import (
	"context"
	"io"
	"log/slog"
	"os"
	"sync/atomic"

	"edgeway/daemon/config"
	"edgeway/daemon/journal"
	"edgeway/daemon/text"
)

// logSwitch is a slog.Handler that passes records to the handler of the current configuration. Parts that outlive a
// reload log as the new configuration says.
type logSwitch struct {
	current *atomic.Pointer[slog.Handler]
	// with adds the attributes and groups of a logger that was derived from this one.
	with func(slog.Handler) slog.Handler
}

func newLogSwitch(c config.Log, w io.Writer) logSwitch {
	l := logSwitch{current: new(atomic.Pointer[slog.Handler]), with: func(h slog.Handler) slog.Handler { return h }}
	l.use(c, w)
	return l
}

// use applies a configuration. If standard error is the journal, use sends it text with fields.
func (l logSwitch) use(c config.Log, w io.Writer) {
	forPeople := &slog.HandlerOptions{Level: c.Level, ReplaceAttr: withoutMessageID}
	var h slog.Handler = slog.NewTextHandler(text.CleanWriter(w), forPeople)
	switch {
	case c.Format == "json":
		h = slog.NewJSONHandler(text.CleanWriter(w), &slog.HandlerOptions{Level: c.Level})
	case w == os.Stderr && journal.Wanted():
		h = journal.NewHandler(c.Level, h)
	}
	l.current.Store(&h)
}

// withoutMessageID drops the identifiers of messages from text: only programs read them.
func withoutMessageID(_ []string, a slog.Attr) slog.Attr {
	if a.Key == "message_id" {
		return slog.Attr{}
	}
	return a
}

// Enabled implements slog.Handler.
func (l logSwitch) Enabled(ctx context.Context, level slog.Level) bool {
	return (*l.current.Load()).Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (l logSwitch) Handle(ctx context.Context, r slog.Record) error {
	return l.with(*l.current.Load()).Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l logSwitch) WithAttrs(attrs []slog.Attr) slog.Handler {
	return logSwitch{l.current, func(h slog.Handler) slog.Handler { return l.with(h).WithAttrs(attrs) }}
}

// WithGroup implements slog.Handler.
func (l logSwitch) WithGroup(name string) slog.Handler {
	return logSwitch{l.current, func(h slog.Handler) slog.Handler { return l.with(h).WithGroup(name) }}
}
