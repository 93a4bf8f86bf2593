package dialer

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"edgeway/test/nameserver"
)

// trial is a connection attempt that finishes after a given time with success, failure or a panic.
type trial struct {
	connected, ends time.Duration // connected is 0 if the attempt never connects
	outcome         string
}

func TestRace(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		trials []trial
		want   int // the index of the trial that succeeds first, or -1
		after  time.Duration
		starts []time.Duration
	}{
		"the first at once": {
			trials: []trial{{ends: 1, outcome: "ok"}, {ends: 1, outcome: "ok"}},
			want:   0, after: 1, starts: []time.Duration{0},
		},
		"a failure starts the next": {
			trials: []trial{{ends: 5, outcome: "fail"}, {ends: 1, outcome: "ok"}},
			want:   1, after: 6, starts: []time.Duration{0, 5},
		},
		"a panic is a failure": {
			trials: []trial{{ends: 5, outcome: "panic"}, {ends: 1, outcome: "ok"}},
			want:   1, after: 6, starts: []time.Duration{0, 5},
		},
		"a slow one gets company": {
			trials: []trial{{ends: time.Hour, outcome: "ok"}, {ends: 1, outcome: "ok"}},
			want:   1, after: familyGap + 1, starts: []time.Duration{0, familyGap},
		},
		"one that is connected gets more time": {
			trials: []trial{{connected: 1, ends: time.Second, outcome: "ok"}, {ends: 1, outcome: "ok"}},
			want:   0, after: time.Second, starts: []time.Duration{0},
		},
		"but not for ever": {
			trials: []trial{{connected: 1, ends: time.Hour, outcome: "ok"}, {ends: 1, outcome: "ok"}},
			want:   1, after: slowPeerTime + 2, starts: []time.Duration{0, slowPeerTime + 1},
		},
		"none": {
			trials: []trial{{ends: 1, outcome: "fail"}, {ends: 2, outcome: "panic"}},
			want:   -1, after: 3, starts: []time.Duration{0, 1},
		},
		"nobody": {nil, -1, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				var mu sync.Mutex
				var starts []time.Duration
				indexes := make([]int, len(c.trials))
				for i := range indexes {
					indexes[i] = i
				}
				got, err := race[int, int]{
					candidates: indexes, gap: func(int) time.Duration { return familyGap }, discard: func(int) {},
					try: func(ctx context.Context, i int, connected func()) (int, error) {
						mu.Lock()
						starts = append(starts, time.Since(began))
						mu.Unlock()
						trial := c.trials[i]
						if trial.connected > 0 {
							time.Sleep(trial.connected)
							connected()
						}
						select {
						case <-time.After(trial.ends - trial.connected):
						case <-ctx.Done():
							return 0, ctx.Err()
						}
						switch trial.outcome {
						case "fail":
							return 0, errors.New("failed")
						case "panic":
							panic("on purpose")
						}
						return i, nil
					},
				}.firstSuccess(t.Context())
				mu.Lock()
				defer mu.Unlock()
				if (err == nil) != (c.want >= 0) || err == nil && got != c.want {
					t.Errorf("attempt %d, error %v; want %d", got, err, c.want)
				}
				if time.Since(began) != c.after || !slices.Equal(starts, c.starts) {
					t.Errorf("after %s, starts %v; want %s, starts %v", time.Since(began), starts, c.after, c.starts)
				}
			})
		})
	}
}

// orderByFamily moves the first address of each family to the start of the list. The limit on the list's length
// prevents a name server from causing hundreds of connection attempts.
func TestAddressFamilyOrder(t *testing.T) {
	t.Parallel()
	for _, c := range [][2][]netip.Addr{
		{
			nameserver.Addrs("2001:db8::1", "2001:db8::2", "192.0.2.1", "192.0.2.2"),
			nameserver.Addrs("2001:db8::1", "192.0.2.1", "2001:db8::2", "192.0.2.2"),
		},
		{nameserver.Addrs("192.0.2.1", "2001:db8::1"), nameserver.Addrs("192.0.2.1", "2001:db8::1")},
		{nameserver.Addrs("192.0.2.1", "192.0.2.2"), nameserver.Addrs("192.0.2.1", "192.0.2.2")},
		{nil, nil},
	} {
		if got := orderByFamily(c[0]); !slices.Equal(got, c[1]) {
			t.Errorf("%v in the order %v, want %v", c[0], got, c[1])
		}
	}
	if got := orderByFamily(make([]netip.Addr, 256)); len(got) != maxAddrs {
		t.Errorf("%d of 256 addresses are tried", len(got))
	}
}
