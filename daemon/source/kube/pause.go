package kube

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// maxPause is the longest pause that Edgeway grants to an API server, apart from the random delay in pause.wait.
const maxPause = 5 * time.Minute

// pause holds the end time of the pause that an overloaded API server requested (Retry-After).
type pause struct {
	mu    sync.Mutex
	until time.Time
}

func (p *pause) heed(resp *http.Response) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return
	}
	seconds, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 64)
	if err != nil || seconds <= 0 {
		return
	}
	until := time.Now().Add(time.Duration(min(seconds, int64(maxPause/time.Second))) * time.Second)
	p.mu.Lock()
	defer p.mu.Unlock()
	if until.After(p.until) {
		p.until = until
	}
}

func (p *pause) left() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Until(p.until)
}

// wait returns after the pause, or when ctx is done. A random delay prevents hosts with the same pause from sending
// requests at the same moment.
func (p *pause) wait(ctx context.Context) error {
	for left := p.left(); left > 0; left = p.left() {
		if err := sleep(ctx, left+rand.N(left/10+1)); err != nil {
			return err
		}
	}
	return ctx.Err()
}
