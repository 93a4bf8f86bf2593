package daemon

import (
	"log/slog"
	"strings"
	"testing"

	"edgeway/daemon/config"
)

// A logger that was made before a reload logs as the new configuration says.
func TestALoggerFollowsTheConfiguration(t *testing.T) {
	var out strings.Builder
	logs := newLogSwitch(config.Log{Level: slog.LevelWarn, Format: "text"}, &out)
	before := slog.New(logs).With("stage", "a").WithGroup("g").With("n", 1)
	before.Info("not said")
	logs.use(config.Log{Level: slog.LevelInfo, Format: "json"}, &out)
	before.Info("said")
	got := out.String()
	if strings.Contains(got, "not said") || !strings.Contains(got, `"level":"INFO","msg":"said","stage":"a","g":{"n":1}}`) {
		t.Errorf("logged:\n%s", got)
	}
}
