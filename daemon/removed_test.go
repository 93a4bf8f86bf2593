package daemon

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"edgeway/daemon/config"
	"edgeway/proxiers/fault"
)

func TestRemovedKeysAreWarnings(t *testing.T) {
	t.Parallel()
	keys := []config.Removed{{File: "/e.toml", Line: 3, Key: "proxy.x", Replacement: "a constant"}, {File: "/conf.d/a.toml", Line: 1, Key: "proxy.y"}}
	var log bytes.Buffer
	logRemovedKeys(slog.New(slog.NewTextHandler(&log, nil)), keys)
	faults := (&Core{cfg: &config.Config{Removed: keys}}).removedKeys()
	if len(faults) != 2 || strings.Count(log.String(), "level=WARN") != 2 {
		t.Fatalf("faults %v, log:\n%s", faults, &log)
	}
	for i, c := range faults {
		if c.ID != "removed-key" || c.Severity != fault.Warning || c.Message != keys[i].String() || c.Fix == "" {
			t.Errorf("condition %+v", c)
		}
	}
	if want := "file=/e.toml line=3 key=proxy.x replacement=\"a constant\""; !strings.Contains(log.String(), want) {
		t.Errorf("no %s in\n%s", want, &log)
	}
}
