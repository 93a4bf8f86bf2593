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
			c.note(&http.Response{Header: http.Header{"Date": {date}}}, time.Now())
			c.note(&http.Response{Header: http.Header{"Date": {"yesterday"}}}, time.Now())
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

// A slow link delays a request or a response without making the host's clock wrong.
func TestDelayedAPIServerTime(t *testing.T) {
	const delay = 40 * time.Second
	for _, beforeServer := range []time.Duration{0, delay / 2, delay} {
		for ahead, want := range map[time.Duration]fault.Severity{
			0: fault.OK, time.Hour: fault.Warning, -time.Hour: fault.Warning,
		} {
			synctest.Test(t, func(t *testing.T) {
				var c clock
				began := time.Now()
				time.Sleep(beforeServer)
				date := time.Now().Add(-ahead).UTC().Format(http.TimeFormat)
				time.Sleep(delay - beforeServer)
				c.note(&http.Response{Header: http.Header{"Date": {date}}}, began)
				time.Sleep(10 * time.Minute)
				got, _ := c.skew()
				if off := got - ahead; off.Abs() > delay+time.Second || ClockFault(got).Severity != want {
					t.Errorf("%s ahead, %s before the server's time: got %s", ahead, beforeServer, got)
				}
			})
		}
	}
}
