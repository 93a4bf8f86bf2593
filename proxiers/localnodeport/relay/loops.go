package relay

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// pauseKind is a reason to pause.
type pauseKind int

const (
	descriptorPause pauseKind = iota
	limitPause
	pauseKinds
)

// pauseLog tells episodes of pauses apart.
type pauseLog struct {
	count atomic.Uint64
	last  atomic.Int64 // since the Relay's start; 0: never
}

// paused is told by each loop that pauses, and again while the pause lasts.
func (r *Relay) paused(kind pauseKind, reason error) {
	log, now := &r.pauses[kind], int64(time.Since(r.start))
	if last := log.last.Swap(now); last != 0 && now-last < int64(episode) {
		return
	}
	log.count.Add(1)
	if r.report != nil {
		r.report(reason)
	}
}

// idlest gives the loop that should have the next connection. The asker keeps it unless another loop
// has clearly fewer.
func (r *Relay) idlest(asker *loop) *loop {
	best, least := asker, asker.active.Load()
	least -= 1 + least/8
	for _, l := range r.loops {
		if n := l.active.Load(); n <= least {
			best, least = l, n-1
		}
	}
	return best
}

// each has all loops call f, and waits until they have. No loop may have ended.
func (r *Relay) each(f func(l *loop)) {
	var done sync.WaitGroup
	for _, l := range r.loops {
		done.Add(1)
		l.post(func() {
			defer done.Done()
			f(l)
		})
	}
	done.Wait()
}

// affordable is how many connections the limit of descriptors allows. A part is left for the pipes, and
// for the rest of the process.
func affordable(loops int) int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1 << 9
	}
	files := int(min(limit.Cur, 1<<30))
	return max((files-min(files/4, loops*2*maxPipes+128))/2, 1)
}
