package vm

import (
	"strconv"
	"sync"
	"time"
)

// tsc reads the CPU's time stamp counter, which QEMU passes to its VMs unchanged.
func tsc() uint64

// clockParameter returns the kernel parameter that sets the time stamp counter's frequency. The kernel's own
// measurement at boot can be wrong by any factor if the VM gets no CPU time during part of the measurement. In one VM,
// the clock ran eight times too fast.
var clockParameter = sync.OnceValue(func() string {
	const span = 100 * time.Millisecond
	ticks, began := stamp()
	time.Sleep(span)
	after, ended := stamp()
	return " tsc_early_khz=" + strconv.FormatInt(int64(after-ticks)*int64(time.Millisecond)/int64(ended.Sub(began)), 10)
})

// stamp reads the time stamp counter and the clock at almost the same time, and returns the values from the fastest of
// ten attempts.
func stamp() (ticks uint64, now time.Time) {
	best := time.Hour
	for range 10 {
		before := time.Now()
		t := tsc()
		if took := time.Since(before); took < best {
			best, ticks, now = took, t, before
		}
	}
	return ticks, now
}
