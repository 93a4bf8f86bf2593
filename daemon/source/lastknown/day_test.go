package lastknown

import (
	"fmt"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/source"
)

// TestBytesOfADay logs one row of a table in test/bench/RESULTS.md for each number of Services. One EndpointSlice
// changes every second. The test simulates only a tenth of a day, because the write rate is constant.
func TestBytesOfADay(t *testing.T) {
	if testing.Short() {
		t.Skip("it writes 100 MB")
	}
	for _, services := range []int{100, 1000, 10000} {
		synctest.Test(t, func(t *testing.T) {
			dir := t.TempDir()
			h := boot(t, dir)
			var objects []source.Object
			for i := range services {
				name := fmt.Sprintf("svc-%d", i)
				objects = append(objects, aService(name, 80), aSlice(name, 5))
			}
			h.serve(objects...)
			time.Sleep(2 * time.Second)
			last := map[string]os.FileInfo{}
			writtenBytes(t, dir, last) // ignore the first state
			var bytes, writes int64
			for began := time.Now(); time.Since(began) < 24*time.Hour/10; time.Sleep(time.Second) {
				h.api.Upsert(aSlice("svc-7", 1+time.Now().Second()%5))
				h.Commit(nil)
				synctest.Wait()
				more, changed := writtenBytes(t, dir, last)
				if bytes += more; changed {
					writes++
				}
			}
			size := last[snapshotName].Size()
			h.stop()
			t.Logf("| %d | %.2f | %.0f | %d |", services, float64(size)/1e6, float64(10*bytes)/1e6, 10*writes)
			if limit := int64(1_000_000_000/10) + size; bytes > limit {
				t.Errorf("%d Services: %d bytes in a tenth of a day, want at most %d", services, bytes, limit)
			}
		})
	}
}

// writtenBytes compares dir with last, updates last, and returns the number of bytes written since the previous call:
// the sizes of new files plus the growth of existing files.
func writtenBytes(t *testing.T, dir string, last map[string]os.FileInfo) (bytes int64, changed bool) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			continue // the Store replaced the file after ReadDir
		}
		before := last[e.Name()]
		switch {
		case before == nil || !os.SameFile(before, info):
			bytes, changed = bytes+info.Size(), true
		case info.Size() > before.Size():
			bytes, changed = bytes+info.Size()-before.Size(), true
		}
		last[e.Name()] = info
	}
	return bytes, changed
}
