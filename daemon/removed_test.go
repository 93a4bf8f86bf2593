package daemon

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"edgeway/daemon/config"
	"edgeway/proxiers/fault"
)

func TestRemovedKeysAreLoggedAsWarnings(t *testing.T) {
	t.Parallel()
	keys := []config.RemovedKey{
		{File: "/e.toml", Line: 3, Key: "proxy.x", Replacement: "a constant"},
		{File: "/e.toml", Line: 5, Key: "proxy.z"},
		{File: "/conf.d/a.toml", Line: 1, Key: "proxy.y"},
	}
	var log bytes.Buffer
	logRemovedKeys(slog.New(slog.NewTextHandler(&log, nil)), keys)
	var faults []string
	for _, f := range (&Core{cfg: &config.Config{RemovedKeys: keys}}).removedKeyFaults() {
		if f.ID != "removed-key" || f.Severity != fault.Warning || f.Fix == "" {
			t.Errorf("fault %+v", f)
		}
		faults = append(faults, f.String())
	}
	want := []string{
		"/e.toml: removed keys are ignored: proxy.x (line 3), proxy.z (line 5)",
		"/conf.d/a.toml: removed keys are ignored: proxy.y (line 1)",
	}
	if !slices.Equal(faults, want) || strings.Count(log.String(), "level=WARN") != len(keys) {
		t.Errorf("faults %q, want %q, log:\n%s", faults, want, &log)
	}
	if want := "file=/e.toml line=3 key=proxy.x replacement=\"a constant\""; !strings.Contains(log.String(), want) {
		t.Errorf("no %s in\n%s", want, &log)
	}
}
