package journal

import (
	"bytes"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	sd "github.com/coreos/go-systemd/v22/journal"

	"edgeway/proxiers/messageid"
)

type entry struct {
	message  string
	priority sd.Priority
	fields   map[string]string
}

type recorder struct {
	entries []entry
	err     error
}

func (r *recorder) send(message string, p sd.Priority, fields map[string]string) error {
	if r.err != nil {
		return r.err
	}
	r.entries = append(r.entries, entry{message, p, fields})
	return nil
}

func (r *recorder) last(t *testing.T) entry {
	t.Helper()
	if len(r.entries) == 0 {
		t.Fatal("the journal has no entry")
	}
	return r.entries[len(r.entries)-1]
}

func newRecorder() (*recorder, *slog.Logger, *bytes.Buffer) {
	var r recorder
	var text bytes.Buffer
	return &r, slog.New(newHandler(slog.LevelDebug, slog.NewTextHandler(&text, nil), r.send)), &text
}

func TestMessageAndFields(t *testing.T) {
	r, log, _ := newRecorder()
	at := time.Date(2026, 11, 21, 6, 0, 0, 0, time.UTC)
	log.With("backend", "nftables").WithGroup("kernel").With("version", 6).Warn("something happened",
		"error", errors.New("exit status 1\nsecond line"), "took", 1500*time.Millisecond, "since", at,
		slog.Group("rule", "handle", 7), "unit", "x.service")
	got := r.last(t)
	if want := `something happened: backend=nftables kernel_version=6 kernel_error="exit status 1\nsecond line" kernel_took=1.5s ` +
		`kernel_since=2026-11-21T06:00:00Z kernel_rule_handle=7 kernel_unit=x.service`; got.message != want {
		t.Errorf("message\n%s\nwant\n%s", got.message, want)
	}
	if want := (map[string]string{
		"SYSLOG_IDENTIFIER": "edgeway", "BACKEND": "nftables", "EDGEWAY_KERNEL_VERSION": "6",
		"EDGEWAY_KERNEL_ERROR": "exit status 1\nsecond line", "EDGEWAY_KERNEL_TOOK": "1.5s", "EDGEWAY_KERNEL_SINCE": "2026-11-21T06:00:00Z",
		"EDGEWAY_KERNEL_RULE_HANDLE": "7", "EDGEWAY_KERNEL_UNIT": "x.service",
	}); !reflect.DeepEqual(got.fields, want) {
		t.Errorf("fields\n%v\nwant\n%v", got.fields, want)
	}
}

func TestPriorities(t *testing.T) {
	r, log, _ := newRecorder()
	for level, want := range map[slog.Level]sd.Priority{
		slog.LevelDebug: sd.PriDebug, slog.LevelInfo: sd.PriInfo, slog.LevelWarn: sd.PriWarning, slog.LevelError: sd.PriErr,
		slog.LevelError + 4: sd.PriErr,
	} {
		log.Log(t.Context(), level, "x")
		if got := r.last(t).priority; got != want {
			t.Errorf("%s has priority %d, want %d", level, got, want)
		}
	}
}

func TestHandlerLevel(t *testing.T) {
	var r recorder
	log := slog.New(newHandler(slog.LevelWarn, slog.DiscardHandler, r.send))
	log.Info("x")
	log.Warn("y")
	if len(r.entries) != 1 || r.last(t).message != "y" {
		t.Errorf("%+v", r.entries)
	}
}

func TestServiceFieldIsNamespaceAndName(t *testing.T) {
	r, log, _ := newRecorder()
	for _, c := range []struct{ key, value, want string }{
		{"service", "default/web", "default/web"},
		{"service", "default/web:http/TCP", "default/web"},
		{"service_port", "default/web/UDP", "default/web"},
		{"object", "Service default/web", "default/web"},
		{"object", "EndpointSlice default/web-x1", ""},
		{"service", "nonsense", ""},
		{"other", "default/web", ""},
	} {
		log.Info("x", c.key, c.value)
		if got := r.last(t).fields["SERVICE"]; got != c.want {
			t.Errorf("%s=%s: SERVICE=%s, want %s", c.key, c.value, got, c.want)
		}
		if got := r.last(t).fields["EDGEWAY_"+strings.ToUpper(c.key)]; got != c.value {
			t.Errorf("%s=%s: the field has %q", c.key, c.value, got)
		}
	}
}

func TestMessageIDIsJournalFieldOnly(t *testing.T) {
	r, log, _ := newRecorder()
	log.Error("x", "message_id", messageid.SyncFailed, "a", 1)
	if got := r.last(t); got.fields["MESSAGE_ID"] != messageid.SyncFailed || got.message != "x: a=1" ||
		len(got.fields) != 3 {
		t.Errorf("%+v", got)
	}
	log.Error("x", "message_id", messageid.SyncFailed)
	if got := r.last(t).message; got != "x" {
		t.Errorf("the message is %q", got)
	}
	log.Error("x")
	if id, ok := r.last(t).fields["MESSAGE_ID"]; ok {
		t.Errorf("a line without an identifier has MESSAGE_ID=%s", id)
	}
}

func TestRejectedRecordsAreWrittenAsText(t *testing.T) {
	r, log, text := newRecorder()
	r.err = errors.New("no such file")
	log.With("source", "kube").WithGroup("g").Warn("x", "a", 1)
	if got := text.String(); !strings.Contains(got, "level=WARN msg=x source=kube g.a=1\n") {
		t.Errorf("standard error has %q", got)
	}
	r.err = nil
	log.Warn("y")
	if strings.Contains(text.String(), "y") || r.last(t).message != "y" {
		t.Error("the journal is not used when it is back")
	}
}

func TestDerivedLoggersDoNotShareAttributes(t *testing.T) {
	r, log, _ := newRecorder()
	base := log.With("a", 1, "b", 2, "c", 3)
	x, y := base.With("d", "x"), base.With("d", "y")
	x.Info("m", "e", 1)
	y.Info("m", "f", 1)
	x.Info("m")
	if got := r.last(t).message; got != "m: a=1 b=2 c=3 d=x" {
		t.Error(got)
	}
}

// The handler must escape control characters in values, because journalctl -x inserts the values into its explanations
// unchanged.
func TestHandlerEscapesControlCharacters(t *testing.T) {
	r, log, _ := newRecorder()
	log.Warn("x", "error", errors.New("\x1b[2J\u009b\x9b\u202e\nline"))
	const want = `\u001b[2J\u009b\x9b\u202e`
	if got := r.last(t); got.message != `x: error="`+strings.ReplaceAll(want, `\`, `\\`)+`\nline"` ||
		got.fields["EDGEWAY_ERROR"] != want+"\nline" {
		t.Errorf("%q %q", got.message, got.fields)
	}
}
