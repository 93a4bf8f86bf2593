package tracker

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/daemon/source"
)

// flapping has a Service change every 10 ms for a while, and gives how often the reader was told.
func flapping(t *testing.T, span time.Duration) (told int) {
	t.Helper()
	tr := New(Layer{Name: "kube"})
	sink := tr.Sink("kube")
	sink.Upsert(&source.Service{Namespace: "a", Name: "flapping"})
	sink.Synced()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range int(span / (10 * time.Millisecond)) {
			sink.Upsert(&source.EndpointSlice{Namespace: "a", Name: "s", Service: "flapping"})
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(2 * flapPause) // what is held back comes
	}()
	for {
		select {
		case <-tr.Changed():
			told++
			tr.Snapshot()
		case <-done:
			return told
		}
	}
}

// One Service that changes 100 times a second has no 100 syncs a second made.
func TestAFlappingServiceIsDamped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		if told := flapping(t, 20*time.Second); told < 35 || told > 50 {
			t.Errorf("told %d times in 20 s, want 20 times at first and once a second from then on", told)
		}
	})
}

// Others, and itself once it is quiet, are announced at once.
func TestOthersAreNotDamped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New(Layer{Name: "kube"})
		sink := tr.Sink("kube")
		sink.Upsert(&source.Service{Namespace: "a", Name: "flapping"})
		sink.Synced()
		atOnce := func(what string, service string) {
			t.Helper()
			select {
			case <-tr.Changed():
			default:
			}
			sink.Upsert(&source.EndpointSlice{Namespace: "a", Name: "s-" + service, Service: service})
			select {
			case <-tr.Changed():
			default:
				t.Errorf("%s is not announced at once", what)
			}
		}
		for range 1000 {
			sink.Upsert(&source.EndpointSlice{Namespace: "a", Name: "s", Service: "flapping"})
			time.Sleep(10 * time.Millisecond)
		}
		for i := range 50 {
			atOnce("another Service", fmt.Sprint("other-", i))
		}
		time.Sleep(flapCalm + time.Second)
		atOnce("the Service that is quiet again", "flapping")
	})
}

// The last change of all is never lost.
func TestWhatIsHeldBackComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := New(Layer{Name: "kube"})
		sink := tr.Sink("kube")
		sink.Upsert(&source.Service{Namespace: "a", Name: "flapping"})
		sink.Synced()
		for range 500 {
			sink.Upsert(&source.EndpointSlice{Namespace: "a", Name: "s", Service: "flapping"})
			select {
			case <-tr.Changed():
				tr.Snapshot()
			default:
			}
			time.Sleep(10 * time.Millisecond)
		}
		last := &source.EndpointSlice{Namespace: "a", Name: "s", Service: "flapping"}
		sink.Upsert(last)
		select {
		case <-tr.Changed():
		case <-time.After(flapPause + time.Millisecond):
			t.Fatal("nothing is announced")
		}
		s, _ := tr.Snapshot()
		if got := s.Services[0].Slices[0]; got != last {
			t.Error("the snapshot does not have the last change")
		}
	})
}

func TestDampingForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d damping
		for i := range 3 * flapsKept {
			d.hit(Name{"a", fmt.Sprint(i)}, time.Now())
			time.Sleep(time.Millisecond)
		}
		if n := len(d.flaps); n > flapsKept {
			t.Errorf("%d Services are remembered, want at most %d", n, flapsKept)
		}
	})
}

// A list of all Services has each of them change at one time. To look through them all for each new one took the square of
// their number.
func TestDampingOfAListIsLinear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d damping
		sweeps, at := 0, 0
		for i := range 16 * flapsKept {
			d.hit(Name{"a", fmt.Sprint(i)}, time.Now())
			if d.sweepAt != at {
				sweeps, at = sweeps+1, d.sweepAt
			}
		}
		if sweeps != 4 {
			t.Errorf("%d Services at once were looked through %d times, want 4", 16*flapsKept, sweeps)
		}
	})
}
