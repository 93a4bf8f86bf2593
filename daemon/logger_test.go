package daemon

import (
	"log/slog"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"edgeway/daemon/config"
	"edgeway/proxiers/messageid"
)

// After a reload, an existing logger uses the level and the format from the new configuration.
func TestLoggerFollowsReload(t *testing.T) {
	var out strings.Builder
	logs := newLogSwitch(config.Log{Level: slog.LevelWarn, Format: "text"}, &out)
	before := slog.New(logs).With("stage", "a").WithGroup("g").With("n", 1)
	before.Info("not said")
	logs.apply(config.Log{Level: slog.LevelInfo, Format: "json"}, &out)
	before.Info("said")
	got := out.String()
	if strings.Contains(got, "not said") ||
		!strings.Contains(got, `"level":"INFO","msg":"said","stage":"a","g":{"n":1}}`) {
		t.Errorf("logged:\n%s", got)
	}
}

func TestMessageIDOnlyInJSONLog(t *testing.T) {
	for format, want := range map[string]bool{"text": false, "json": true} {
		var out strings.Builder
		slog.New(newLogSwitch(config.Log{Format: format}, &out)).Warn("x", "message_id", messageid.SyncFailed)
		if got := out.String(); strings.Contains(got, messageid.SyncFailed) != want ||
			strings.Contains(got, "message_id") != want {
			t.Errorf("%s: %q", format, got)
		}
	}
}

func TestLogEscapesControlCharacters(t *testing.T) {
	for _, format := range []string{"text", "json"} {
		var out strings.Builder
		log := slog.New(newLogSwitch(config.Log{Format: format}, &out))
		log.Warn("x", "error", "\x1b[2J\u009b\x9b\u202e\x7f\rend")
		got := out.String()
		if !strings.Contains(got, `[2J`) || !utf8.ValidString(got) ||
			strings.ContainsFunc(strings.TrimSuffix(got, "\n"), func(r rune) bool {
				return unicode.IsControl(r) || unicode.Is(unicode.Cf, r)
			}) {
			t.Errorf("%s: %q", format, got)
		}
	}
}
