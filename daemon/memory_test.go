package daemon

import (
	"math"
	"os"
	"path/filepath"
	"testing"

	"edgeway/proxiers"
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

// The memory limit of a small host allows many ordinary Services, each with one port, one address and five endpoints.
func TestBudget(t *testing.T) {
	xtables, err := resolveBackend(t.Context(), Backends(), "iptables-nft")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		limit    int64
		cost     proxiers.Cost
		services int64
	}{
		{16 << 20, proxiers.Cost{}, 1000},
		{128 << 20 * memoryShare / 100, proxiers.Cost{}, 10_000}, // half the memory of a host with 256 MB
		{256 << 20 * memoryShare / 100, proxiers.Cost{}, 30_000},
		{128 << 20 * memoryShare / 100, xtables.Traits.Cost, 1_000},
		{256 << 20 * memoryShare / 100, xtables.Traits.Cost, 3_000},
	} {
		b := budget(c.limit, c.cost)
		if got := b.Limit / (b.Port + b.Address + 5*b.Endpoint); got < c.services || got > 2*c.services {
			t.Errorf("%d bytes, %+v: room for %d Services, want about %d", c.limit, c.cost, got, c.services)
		}
	}
	if b := budget(math.MaxInt64, proxiers.Cost{}); b.Limit != 0 || b.Endpoint == 0 {
		t.Errorf("without a limit: %+v", b)
	}
}
