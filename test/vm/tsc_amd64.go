package vm

import (
	"strconv"
	"sync"
	"time"
)

// tsc reads the processor's time stamp counter, which the emulator passes on to its machines as it is.
func tsc() uint64

// clockParameter tells a machine's kernel how fast the time stamp counter is. Its own measurement at boot is wrong by
// any factor where the host gives the machine no time meanwhile: one had a clock that went eight times too fast.
var clockParameter = sync.OnceValue(func() string {
	const span = 100 * time.Millisecond
	ticks, began := stamp()
	time.Sleep(span)
	after, ended := stamp()
	return " tsc_early_khz=" + strconv.FormatInt(int64(after-ticks)*int64(time.Millisecond)/int64(ended.Sub(began)), 10)
})

// stamp reads both clocks at one time: of several tries, the one that took least.
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
