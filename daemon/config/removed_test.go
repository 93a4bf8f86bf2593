package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A configuration still loads if its main file sets every removed key and a drop-in sets a removed key again.
func TestRemovedKeysAreIgnoredAndReported(t *testing.T) {
	text := "version = 1\nsource.file.paths = ['m']\n"
	var want []RemovedKey
	for i, key := range slices.Sorted(maps.Keys(removedKeys)) {
		text += key + " = '1s'\n"
		want = append(want, RemovedKey{File: "/e.toml", Line: i + 3, Key: key, Replacement: removedKeys[key]})
	}
	const dropIn = "[proxy]\nmin_sync_period = 7\nmasquerade_bit = 3"
	want = append(want, RemovedKey{"/conf.d/a.toml", 2, "proxy.min_sync_period", removedKeys["proxy.min_sync_period"]})
	got, err := load([]file{{"/e.toml", []byte(text)}, {"/conf.d/a.toml", []byte(dropIn)}}, "host", choices)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got.RemovedKeys); diff != "" {
		t.Errorf("removed keys (-want +got):\n%s", diff)
	}
	if got.Proxy.MasqueradeBit != 3 {
		t.Error("a key beside a removed one has no effect")
	}
	const line = "/conf.d/a.toml:2: proxy.min_sync_period: this key was removed and has no effect: "
	if s := got.RemovedKeys[len(got.RemovedKeys)-1].String(); !strings.HasPrefix(s, line) {
		t.Errorf("text %q, want %q first", s, line)
	}
}

// An empty section is valid even if Edgeway no longer supports any key of the section.
func TestEmptySectionOfRemovedKeys(t *testing.T) {
	for key := range removedKeys {
		section := key[:strings.LastIndex(key, ".")]
		text := fmt.Sprintf("version = 1\nsource.file.paths = ['m']\n[%s]\n", section)
		if _, err := load([]file{{"/e.toml", []byte(text)}}, "host", choices); err != nil {
			t.Error(err)
		}
	}
}

func TestRemovedKeysAreNotInSchema(t *testing.T) {
	known := values(Default(), choices)
	for key, replacement := range removedKeys {
		if _, ok := known[key]; ok || replacement == "" {
			t.Errorf("%s: in the schema: %t, replacement %q", key, ok, replacement)
		}
	}
}

// The upgrade test in test/vm uses a configuration that sets every removed key. Each removed key in that configuration
// has the comment "# removed".
func TestUpgradeTestSetsEveryRemovedKey(t *testing.T) {
	const path = "../../test/vm/host/testdata/before/site.toml"
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	section, marked := "", map[string]bool{}
	for line := range strings.Lines(string(raw)) {
		if name, ok := strings.CutPrefix(line, "["); ok {
			section = strings.TrimSuffix(name, "]\n") + "."
		}
		if key, _, _ := strings.Cut(line, " = "); strings.HasSuffix(line, " # removed\n") {
			marked[section+key] = true
		}
	}
	for key := range removedKeys {
		if !marked[key] {
			t.Errorf("%s does not set %s with the comment # removed", path, key)
		}
	}
}
