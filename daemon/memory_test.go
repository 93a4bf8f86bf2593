package daemon

import (
	"math"
	"os"
	"path/filepath"
	"testing"
)

func TestGroupMemory(t *testing.T) {
	for _, c := range []struct {
		name, groups string
		files        map[string]string
		want         int64
		ok           bool
	}{
		{"of its own", "0::/system.slice/edgeway.service\n", map[string]string{"system.slice/edgeway.service/memory.max": "268435456\n"}, 268435456, true},
		{"high is lower", "0::/a\n", map[string]string{"a/memory.max": "268435456\n", "a/memory.high": "134217728\n"}, 134217728, true},
		{"of the group above", "0::/a/b\n", map[string]string{"a/memory.max": "1000000\n", "a/b/memory.max": "max\n"}, 1000000, true},
		{"version 1", "9:name=systemd:/x\n4:memory:/a/b\n0::/x\n", map[string]string{"memory/a/b/memory.limit_in_bytes": "268435456\n"}, 268435456, true},
		{"none in version 1", "4:memory:/\n", map[string]string{"memory/memory.limit_in_bytes": "9223372036854771712\n"}, 0, false},
		{"none", "0::/\n", map[string]string{"memory.max": "max\n"}, 0, false},
		{"no file", "0::/a\n", nil, 0, false},
		{"nonsense", "a\n::\n", nil, 0, false},
	} {
		root := t.TempDir()
		groups := filepath.Join(root, "cgroup")
		for name, text := range c.files {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(groups, []byte(c.groups), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, ok := groupMemory(groups, root); got != c.want || ok != c.ok {
			t.Errorf("%s: %d, %v; want %d, %v", c.name, got, ok, c.want, c.ok)
		}
	}
}

// What the memory limit of small hosts has room for: an ordinary Service has one port with an address and five endpoints,
// which makes ten elements.
func TestElements(t *testing.T) {
	for _, c := range []struct{ limit, each, least, most int64 }{
		{math.MaxInt64, 0, 0, 0},
		{16 << 20, 0, minElements, minElements},
		{128 << 20 * memoryShare / 100, 0, 100_000, 150_000}, // 10,000 Services on a host with 256 MB
		{256 << 20 * memoryShare / 100, 0, 250_000, 350_000},
		{256 << 20 * memoryShare / 100, 5 << 10, 20_000, 30_000},
	} {
		if got := elements(c.limit, c.each); got < c.least || got > c.most {
			t.Errorf("%d bytes, %d each: %d elements, want %d to %d", c.limit, c.each, got, c.least, c.most)
		}
	}
}
