package kube

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/proxiers/fault"
)

// The clock skew stays the same between two responses from the API server.
func TestAPIServerClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c clock
		if _, ok := c.skew(); ok {
			t.Error("the clock is known without an answer")
		}
		answer := func(ahead time.Duration) {
			date := time.Now().Add(-ahead).UTC().Format(http.TimeFormat)
			c.note(&http.Response{Header: http.Header{"Date": {date}}})
			c.note(&http.Response{Header: http.Header{"Date": {"yesterday"}}})
		}
		for ahead, want := range map[time.Duration]fault.Severity{
			0: fault.OK, 9 * time.Second: fault.OK, -9 * time.Second: fault.OK, time.Hour: fault.Warning, -time.Hour: fault.Warning,
		} {
			answer(ahead)
			time.Sleep(10 * time.Minute)
			got, ok := c.skew()
			if off := got - ahead; !ok || off.Abs() > time.Second || ClockFault(got).Severity != want {
				t.Errorf("%s ahead: got %s, %+v", ahead, got, ClockFault(got))
			}
		}
	})
}
