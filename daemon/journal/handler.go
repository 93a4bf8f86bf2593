// Package journal writes the log to systemd's journal, with priorities and fields.
//
//   - "journalctl -u edgeway SERVICE=default/web" prints the lines about one Service.
//   - "journalctl -u edgeway STAGE=conntrack -p err" prints the errors of one stage.
//   - "journalctl -u edgeway -x" adds explanations from units/edgeway.catalog.
//
// The message repeats the attributes, except for message_id, because journalctl shows only the message by default.
package journal

import (
	"context"
	"log/slog"

	sd "github.com/coreos/go-systemd/v22/journal"
)

// identifier is the name that journalctl prints before the process ID, and that "journalctl -t" filters by.
const identifier = "edgeway"

// IsAvailable reports whether standard error is connected to the journal and the journal accepts direct writes.
func IsAvailable() bool {
	connected, err := sd.StderrIsJournalStream()
	return err == nil && connected && sd.Enabled()
}

// handler is a slog.Handler that sends records to the journal. A group's name becomes a prefix of the keys in that
// group.
type handler struct {
	level slog.Leveler
	// fallback handles the records that the journal rejects.
	fallback slog.Handler
	send     func(message string, priority sd.Priority, fields map[string]string) error
	attrs    []attr
	group    string // group is the prefix of the keys of later attributes
}

// NewHandler returns a handler for records at or above level. If the journal rejects a record, the handler passes the
// record to fallback.
func NewHandler(level slog.Leveler, fallback slog.Handler) slog.Handler {
	return newHandler(level, fallback, sd.Send)
}

func newHandler(level slog.Leveler, fallback slog.Handler,
	send func(string, sd.Priority, map[string]string) error,
) *handler {
	return &handler{level: level, fallback: fallback, send: send}
}

// Enabled implements slog.Handler.
func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.level.Level() }

// Handle implements slog.Handler.
func (h *handler) Handle(ctx context.Context, r slog.Record) error {
	attrs := h.attrs[:len(h.attrs):len(h.attrs)]
	r.Attrs(func(a slog.Attr) bool {
		attrs = flatten(attrs, h.group, a)
		return true
	})
	fields := fieldsOf(attrs)
	fields["SYSLOG_IDENTIFIER"] = identifier
	if h.send(messageText(r.Message, attrs), priority(r.Level), fields) == nil {
		return nil
	}
	return h.fallback.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.attrs = h.attrs[:len(h.attrs):len(h.attrs)]
	for _, a := range attrs {
		next.attrs = flatten(next.attrs, h.group, a)
	}
	next.fallback = h.fallback.WithAttrs(attrs)
	return &next
}

// WithGroup implements slog.Handler.
func (h *handler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	next := *h
	next.group = h.group + name + "_"
	next.fallback = h.fallback.WithGroup(name)
	return &next
}

func priority(l slog.Level) sd.Priority {
	switch {
	case l >= slog.LevelError:
		return sd.PriErr
	case l >= slog.LevelWarn:
		return sd.PriWarning
	case l >= slog.LevelInfo:
		return sd.PriInfo
	}
	return sd.PriDebug
}
