package daemon

import (
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

func TestMemoryIsGivenBackAtRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		frees, used := 0, uint64(100<<20)
		percent := startPercent
		r := rest{
			free: func() { frees++; used = 40 << 20 }, inUse: func() uint64 { return used },
			percent: func(p int) int { percent = p; return 0 },
		}
		want := func(n int, when string) {
			t.Helper()
			if synctest.Wait(); frees != n {
				t.Fatalf("%s: freed %d times, want %d", when, frees, n)
			}
		}
		r.worked(true)
		time.Sleep(memoryRest - time.Second)
		want(0, "before the rest")
		if percent != startPercent {
			t.Errorf("GOGC is %d before the first rest", percent)
		}
		r.worked(false) // changes do not put it off
		time.Sleep(time.Second)
		want(1, "after a full sync")
		if percent != restPercent {
			t.Errorf("GOGC is %d after it", percent)
		}

		for range 5 {
			used += 3 << 20
			r.worked(false)
			time.Sleep(memoryRest - time.Second)
		}
		want(1, "while there are changes")
		time.Sleep(time.Second)
		want(2, "after them")

		used += 5 << 20
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

func TestHeapInUse(t *testing.T) {
	before := heapInUse()
	block := make([]byte, 64<<20)
	if after := heapInUse(); before == 0 || after < before+32<<20 {
		t.Errorf("%d bytes, and %d with 64 MiB more", before, after)
	}
	runtime.KeepAlive(block)
}
