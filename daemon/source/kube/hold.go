package kube

import (
	"context"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// maxHold is the longest that an API server may ask to be left alone.
const maxHold = 5 * time.Minute

// holds are the times before which API servers want no request, by host and port. They outlast new credentials, but
// not a change of the server: another one did not ask for it.
type holds struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// heed notes the time for which an overloaded server asks all of its clients to wait.
func (h *holds) heed(server string, resp *http.Response) {
	if resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
		return
	}
	seconds, err := strconv.ParseInt(resp.Header.Get("Retry-After"), 10, 64)
	if err != nil || seconds <= 0 {
		return
	}
	until := time.Now().Add(time.Duration(min(seconds, int64(maxHold/time.Second))) * time.Second)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.until == nil {
		h.until = make(map[string]time.Time)
	}
	if until.After(h.until[server]) {
		h.until[server] = until
	}
}

func (h *holds) left(server string) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(h.until[server])
}

// held gives how long the server in force wants no request.
func (c *client) held() time.Duration { return c.holds.left(c.route.Load().server.Host) }

// wait returns when the server in force wants requests again, or ctx ends. Hosts that were told the same come one by one.
func (c *client) wait(ctx context.Context) error {
	for {
		r := c.route.Load()
		left := c.holds.left(r.server.Host)
		if left <= 0 || ctx.Err() != nil {
			return ctx.Err()
		}
		here, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(r.replaced, cancel)
		_ = sleep(here, left+rand.N(left/10+1)) // whatever ended it, the next round sees
		stop()
		cancel()
	}
}
