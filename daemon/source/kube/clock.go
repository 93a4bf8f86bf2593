package kube

import (
	"net/http"
	"sync"
	"time"

	"edgeway/proxiers/fault"
)

// ClockID is the ID of the fault for a wrong host clock.
const ClockID = "clock"

// maxSkew is the largest tolerated difference between the clocks of this host and of the API server. A host whose clock
// is behind rejects new certificates. A host with a wrong clock misjudges the expiry of tokens and certificates.
const maxSkew = 10 * time.Second

// clock estimates the current time of the API server's clock from the server's latest response.
type clock struct {
	mu sync.Mutex
	// serverTime is the time in the response's Date header plus half a second, and writtenAt is the estimated time on
	// this host's clock when the server wrote the header.
	serverTime, writtenAt time.Time
}

// note records the server's time in the response to a request that began at the given time.
func (c *clock) note(resp *http.Response, began time.Time) {
	at, err := http.ParseTime(resp.Header.Get("Date"))
	if err != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	// The Date header (RFC 9110) contains whole seconds, so the actual time is later by half a second on average.
	c.serverTime = at.Add(time.Second / 2)
	// A slow link may have delayed the response. Of all moments between the request and the response, note chooses the
	// moment for which the clocks differ least, because a delay must not look like a wrong clock.
	waited := c.serverTime.Sub(began.Round(0)) // the time until the server wrote the header, if the clocks agree
	c.writtenAt = began.Add(min(max(waited, 0), time.Since(began)))
}

// skew returns the time by which this host's clock is ahead of the API server's clock. skew measures the time since the
// latest response with the monotonic clock, so the result is still correct after the host's clock is set. ok is false
// before the first response.
func (c *clock) skew() (skew time.Duration, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.serverTime.IsZero() {
		return 0, false
	}
	return time.Now().Round(0).Sub(c.serverTime.Add(time.Since(c.writtenAt))), true
}

// ClockFault returns the fault for a difference between the clocks of this host and of the API server. The severity is
// OK if the clocks agree.
func ClockFault(ahead time.Duration) fault.Fault {
	skew, word := ahead.Round(time.Second), "ahead of"
	if skew < 0 {
		skew, word = -skew, "behind"
	}
	if skew <= maxSkew {
		return fault.New(ClockID, fault.OK, "", "the clocks of this host and of the API server agree")
	}
	return fault.New(ClockID, fault.Warning, "timedatectl set-ntp true",
		"this host's clock is %s %s the API server's clock: valid credentials may seem expired", skew, word)
}

// ClockFaults returns the fault for this host's clock, or nil if the clock is right or the difference is unknown.
func (s *Source) ClockFaults() []fault.Fault {
	ahead, ok := s.client.Load().transport.clock.skew()
	if f := ClockFault(ahead); ok && f.Severity > fault.OK {
		return []fault.Fault{f}
	}
	return nil
}
