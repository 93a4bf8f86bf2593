package daemon

import (
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemoryIsGivenBackAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var frees, used, percent atomic.Int64 // the timer's goroutine writes them, too
		used.Store(100 << 20)
		percent.Store(startPercent)
		r := rest{
			free: func() { frees.Add(1); used.Store(40 << 20) }, held: func() uint64 { return uint64(used.Load()) },
			percent: func(p int) int { return int(percent.Swap(int64(p))) },
		}
		want := func(n int64, when string) {
			t.Helper()
			if synctest.Wait(); frees.Load() != n {
				t.Fatalf("%s: freed %d times, want %d", when, frees.Load(), n)
			}
		}
		r.worked(true)
		time.Sleep(memoryRest - time.Second)
		want(0, "before the rest")
		if percent.Load() != startPercent {
			t.Errorf("GOGC is %d before the first rest", percent.Load())
		}
		r.worked(false) // changes do not put it off
		time.Sleep(time.Second)
		want(1, "after a full sync")
		if percent.Load() != restPercent {
			t.Errorf("GOGC is %d after it", percent.Load())
		}

		for range 5 {
			used.Add(2 << 20)
			r.worked(false)
			time.Sleep(memoryRest - time.Second)
		}
		want(1, "while there are changes")
		time.Sleep(time.Second)
		want(2, "after them")

		used.Add(4 << 20)
		r.worked(false)
		time.Sleep(time.Minute)
		want(2, "with little to free")
		r.worked(true)
		time.Sleep(memoryRest)
		want(3, "after another full sync")
	})
}

// A start collects less often, unless the environment says how often.
func TestStartCollectsLessOften(t *testing.T) {
	for _, c := range []struct {
		env  string
		want int
	}{{"", startPercent}, {"70", 70}} {
		t.Setenv("GOGC", c.env)
		before := debug.SetGCPercent(70)
		newRest()
		if got := debug.SetGCPercent(before); got != c.want {
			t.Errorf("GOGC=%q: %d, want %d", c.env, got, c.want)
		}
	}
}

// What is free, and not given back, is held.
func TestHeapHeld(t *testing.T) {
	debug.FreeOSMemory() // or the block may get room that is held already
	before := heapHeld()
	block := make([]byte, 64<<20)
	if after := heapHeld(); before == 0 || after < before+32<<20 {
		t.Errorf("%d bytes, and %d with 64 MiB more", before, after)
	}
	runtime.KeepAlive(block)
	debug.FreeOSMemory() // not in the middle of it, as the runtime gives back on its own
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if got, want := heapHeld(), m.HeapSys-m.HeapReleased; got+16<<20 < want || want+16<<20 < got {
		t.Errorf("%d bytes after a collection, want about %d", got, want)
	}
}
