package sim

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// logs counts the daemon's log lines and keeps the most recent ones.
type logs struct {
	mu    sync.Mutex
	count map[string]int
	lines []string
	start time.Time
	attrs string
	root  *logs
}

// maxKeptLines is the maximum number of log lines in the output of a failed run.
const maxKeptLines = 400

func (l *logs) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelInfo }

func (l *logs) Handle(_ context.Context, r slog.Record) error {
	var text strings.Builder
	fmt.Fprintf(&text, "%s %s%s", r.Level, r.Message, l.attrs)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&text, " %s=%v", a.Key, a.Value)
		return true
	})
	root := l.base()
	root.mu.Lock()
	root.count[r.Message]++
	root.mu.Unlock()
	root.add(text.String())
	return nil
}

func (l *logs) base() *logs {
	if l.root != nil {
		return l.root
	}
	return l
}

func (l *logs) add(line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("%12s  %s", time.Since(l.start).Round(time.Millisecond), line))
	if len(l.lines) > 2*maxKeptLines {
		l.lines = append(l.lines[:0], l.lines[maxKeptLines:]...)
	}
}

func (l *logs) total() (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.count {
		n += c
	}
	return n
}

func (l *logs) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := &logs{root: l.base(), attrs: l.attrs}
	for _, a := range attrs {
		next.attrs += fmt.Sprintf(" %s=%v", a.Key, a.Value)
	}
	return next
}

// WithGroup returns l unchanged, because the daemon uses no groups.
func (l *logs) WithGroup(string) slog.Handler { return l }
