package lastknown

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/source"
	"edgeway/proxiers/plan"
)

// allocatedMiB returns the number of MiB that f allocates, which is an upper bound on the memory that f uses.
func allocatedMiB(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return (after.TotalAlloc - before.TotalAlloc) >> 20
}

// A faulty disk or a botched restore may leave a huge snapshot. Edgeway detects and renames a huge snapshot without
// using much memory.
func TestHugeFileIsSetAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.serve(everyKind()...)
		time.Sleep(2 * time.Second)
		h.stop()
		snapshot := filepath.Join(dir, snapshotName)
		good, err := os.ReadFile(snapshot)
		if err != nil {
			t.Fatal(err)
		}
		noise := make([]byte, 64<<20)
		_, _ = rand.NewChaCha8([32]byte{7}).Read(noise)
		for name, c := range map[string]struct {
			content []byte
			size    int64
			want    string
		}{
			"sparse":         {good, 1 << 30, "the file size of 1024 MiB exceeds the maximum of 512 MiB"},
			"at the bound":   {good, maxFile, "a line is longer than 8 MiB"},
			"noise":          {append(noise, '\n'), 0, "decode header"},
			"one long line":  {seal(bytes.Repeat([]byte("x"), 32<<20)), 0, "a line is longer than 8 MiB"},
			"zeros, an end":  {slices.Concat(make([]byte, 32<<20), good), 0, "a line is longer than 8 MiB"},
			"a line of JSON": {seal(slices.Concat([]byte(`{"service":{"name":"`), bytes.Repeat([]byte("x"), maxLine), []byte(`"}}`))), 0, "a line is longer than 8 MiB"},
		} {
			if err := os.WriteFile(snapshot, c.content, 0o600); err != nil {
				t.Fatal(err)
			}
			if c.size > 0 {
				if err := os.Truncate(snapshot, c.size); err != nil {
					t.Fatal(err)
				}
			}
			used := allocatedMiB(func() { h = boot(t, dir) })
			h.stop()
			if used > 48 {
				t.Errorf("%s: reading it took %d MiB", name, used)
			}
			if got := h.Status().Fault.Message; h.loaded.synced || !strings.Contains(got, c.want) ||
				strings.Count(h.log.String(), "level=ERROR") != 1 {
				t.Errorf("%s: synced %v, fault %q, want %q", name, h.loaded.synced, got, c.want)
			}
			if err := os.Remove(snapshot + ".damaged"); err != nil {
				t.Errorf("%s: set aside: %v", name, err)
			}
		}
	})
}

func TestUnsuitableObjectsAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		huge := aSlice("huge", 0)
		for i := range 1000 {
			e := source.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Hints: &source.Hints{}}
			for j := range 50 {
				e.ForNodes = append(e.ForNodes, strings.Repeat("n", 60)+"."+strings.Repeat("m", 60)+"."+
					strings.Repeat("o", 60)+fmt.Sprint(".", j))
			}
			huge.Endpoints = append(huge.Endpoints, e)
		}
		h := boot(t, dir)
		late := aService("late", 80)
		late.Created = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) // JSON has no years above 9999
		h.serve(aService("web", 80), huge, late)
		time.Sleep(2 * time.Second)
		h.api.Upsert(huge)
		h.api.Upsert(aService("dns", 53))
		h.Commit(nil)
		time.Sleep(2 * time.Second)
		if st := h.Status(); st.Fault.Message != "" {
			t.Errorf("status %+v", st)
		}
		h.stop()
		h = boot(t, dir)
		defer h.stop()
		if len(h.loaded.objects) != 2 {
			t.Errorf("%d objects", len(h.loaded.objects))
		}
	})
}

// Holdings that exceed the maximum line length must not prevent Edgeway from saving the objects.
func TestTooManyHoldingsAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		h := boot(t, dir)
		h.api.Upsert(aService("web", 80))
		h.api.Synced()
		h.Commit(slices.Repeat([]source.Holding{{Namespace: strings.Repeat("n", 60)}}, maxLine/60))
		time.Sleep(2 * time.Second)
		if st := h.Status(); st.Fault.Message != "" {
			t.Errorf("status %+v", st)
		}
		h.stop()
		h = boot(t, dir)
		defer h.stop()
		if len(h.loaded.objects) != 1 || h.Holdings() != nil {
			t.Errorf("%d objects, %d holdings", len(h.loaded.objects), len(h.Holdings()))
		}
	})
}

func TestHoldingsAreRestored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		one := []source.Holding{{
			Addr: netip.MustParseAddr("198.51.100.1"), Protocol: plan.TCP, Port: 80,
			Namespace: "ns", Name: "web",
		}}
		two := append(slices.Clone(one), source.Holding{Protocol: plan.UDP, Port: 30053, Namespace: "ns", Name: "dns"})
		h := boot(t, dir)
		if held := h.Holdings(); held != nil {
			t.Errorf("without a state: %v", held)
		}
		h.api.Upsert(aService("web", 80))
		h.api.Synced()
		for _, held := range [][]source.Holding{one, two, nil, one} {
			h.Commit(held)
			time.Sleep(2 * time.Second)
			h.stop()
			h = boot(t, dir)
			if !slices.Equal(h.Holdings(), held) {
				t.Errorf("got %v, want %v", h.Holdings(), held)
			}
			h.serve(aService("web", 80))
			h.Commit(held)
			time.Sleep(2 * time.Second)
		}
		h.stop()
	})
}

// A Store that is not running writes nothing to disk, because another Store may be running.
func TestNewDoesNotChangeDisk(t *testing.T) {
	dir := t.TempDir()
	other := filepath.Join(dir, ".lastknown.jsonl123")
	if err := os.WriteFile(other, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	New(dir, Options{})
	New(filepath.Join(dir, "new"), Options{})
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 || entries[0].Name() != filepath.Base(other) {
		t.Errorf("%v %v", entries, err)
	}
	synctest.Test(t, func(t *testing.T) {
		boot(t, dir).stop()
		if _, err := os.Stat(other); err == nil {
			t.Error("what a crash left behind is still there")
		}
	})
}
