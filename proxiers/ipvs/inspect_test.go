package ipvs

import (
	"context"
	"maps"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/ipvs"

	"edgeway/proxiers/plan"
)

// fakeServers simulates the kernel's virtual servers and their endpoints.
type fakeServers struct {
	mu               sync.Mutex
	servers          map[key]found
	endpts           map[netip.AddrPort]map[netip.AddrPort]int
	endpointRequests int // counts the requests for endpoints
	lists            int
	listDuration     time.Duration // list sleeps for listDuration
}

func (f *fakeServers) find(k key) (found, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s, there := f.servers[k]
	return s, there, nil
}

// list returns the servers that exist at the start of the call.
func (f *fakeServers) list() (map[key]found, error) {
	f.mu.Lock()
	f.lists++
	list, took := maps.Clone(f.servers), f.listDuration
	f.mu.Unlock()
	time.Sleep(took)
	return list, nil
}

func (f *fakeServers) endpoints(s *ipvs.Service) (map[netip.AddrPort]int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.endpointRequests++
	at := addrPort(s.Address, s.Port)
	if _, there := f.servers[key{plan.TCP, at}]; !there {
		return nil, nil // Linux 6.1 returns no endpoints and no error
	}
	return maps.Clone(f.endpts[at]), nil
}

// numServers exceeds the number of servers that one short poll covers.
const numServers = 300

// inspectedHost holds a watcher and the servers that it expects.
type inspectedHost struct {
	*testing.T
	*fakeServers
	watcher *watcher
	mu      sync.Mutex
	drifts  []string
}

func newInspectedHost(t *testing.T) *inspectedHost {
	h := &inspectedHost{T: t, fakeServers: &fakeServers{}}
	h.watcher = &watcher{ipvs: h.fakeServers, drift: func(what string) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.drifts = append(h.drifts, what)
	}}
	h.sync()
	ctx, cancel := context.WithCancel(t.Context())
	var looking sync.WaitGroup
	looking.Go(func() { h.watcher.poll(ctx) })
	t.Cleanup(func() { cancel(); looking.Wait() })
	return h
}

func (h *inspectedHost) sync() {
	h.watcher.begin()
	h.watcher.forget()
	want := map[key]wanted{}
	h.fakeServers.mu.Lock()
	h.servers, h.endpts = map[key]found{}, map[netip.AddrPort]map[netip.AddrPort]int{}
	for i := range numServers {
		w := wanted{scheduler: "rr"}
		at := server(i)
		h.endpts[at.at] = map[netip.AddrPort]int{}
		for j := range 2 {
			e := plan.Endpoint{Addr: endpoint(i, j)}
			w.endpoints = append(w.endpoints, e)
			h.endpts[at.at][e.Addr] = weight(e)
		}
		want[at], h.servers[at] = w, found{&ipvs.Service{
			Address: at.at.Addr().AsSlice(), Port: at.at.Port(),
			SchedName: "rr",
		}, true}
	}
	h.fakeServers.mu.Unlock()
	h.watcher.remember(want)
	h.watcher.finish(true)
}

func server(i int) key {
	return key{plan.TCP, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 10080)}
}

func endpoint(i, j int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244 + byte(j), byte(i >> 8), byte(i)}), 8080)
}

func (h *inspectedHost) change(do func()) {
	h.fakeServers.mu.Lock()
	defer h.fakeServers.mu.Unlock()
	do()
}

func (h *inspectedHost) reported(during time.Duration) []string {
	time.Sleep(during)
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.drifts
	h.drifts = nil
	return out
}

func TestServersAreInspected(t *testing.T) {
	const last = numServers - 1
	for name, c := range map[string]struct {
		do     func(h *inspectedHost, at key)
		says   string
		within time.Duration
	}{
		"all are removed":        {func(h *inspectedHost, _ key) { clear(h.servers) }, "was removed", shortPollInterval},
		"one is removed":         {func(h *inspectedHost, at key) { delete(h.servers, at) }, "AT was removed", listInterval},
		"one is edited":          {func(h *inspectedHost, at key) { h.servers[at] = found{h.servers[at].raw, false} }, "AT was changed", listInterval},
		"a scheduler is changed": {func(h *inspectedHost, at key) { h.servers[at] = found{&ipvs.Service{SchedName: "wlc"}, true} }, "AT has the scheduler wlc", listInterval},
		"one is added":           {func(h *inspectedHost, _ key) { h.servers[server(5000)] = h.servers[server(0)] }, server(5000).String() + " was added", listInterval},
		"an endpoint is removed": {func(h *inspectedHost, at key) { delete(h.endpts[at.at], endpoint(last/2, 1)) }, "the endpoints of AT were changed", 30 * time.Second},
		"an endpoint is added":   {func(h *inspectedHost, at key) { h.endpts[at.at][endpoint(9999, 0)] = 1 }, "the endpoints of AT were changed", 30 * time.Second},
		"a weight is changed":    {func(h *inspectedHost, at key) { h.endpts[at.at][endpoint(last/2, 0)] = 0 }, "the endpoints of AT were changed", 30 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newInspectedHost(t)
				if got := h.reported(time.Hour); len(got) > 0 {
					t.Fatalf("nothing happened, and it reports %q", got)
				}
				at := server(last / 2)
				h.change(func() { c.do(h, at) })
				got := h.reported(c.within + shortPollInterval)
				want := strings.ReplaceAll(c.says, "AT", at.String())
				if len(got) != 1 || !strings.Contains(got[0], want) {
					t.Errorf("it reports %q, want %q", got, want)
				}
				if got := h.reported(time.Hour); len(got) > 0 {
					t.Errorf("before the full sync it reports more: %q", got)
				}
				h.sync()
				if got := h.reported(time.Hour); len(got) > 0 {
					t.Errorf("after the full sync it reports %q", got)
				}
			})
		})
	}
}

// The watcher does not report Apply's own changes as drift, even if Apply fails.
func TestOwnChangesAreNotReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newInspectedHost(t)
		h.change(func() { h.listDuration = 40 * time.Millisecond })
		moved := server(1)
		raw, want := h.servers[moved], map[key]wanted{moved: h.watcher.servers[moved]}
		for i := range 2000 {
			h.watcher.begin()
			if i%2 == 0 {
				h.watcher.replaceServers(want, nil)
				time.Sleep(10 * time.Millisecond)
				h.change(func() { delete(h.servers, moved) })
			} else {
				h.change(func() { h.servers[moved] = raw })
				time.Sleep(10 * time.Millisecond)
				h.watcher.replaceServers(nil, want)
			}
			h.watcher.finish(true)
			time.Sleep(123 * time.Millisecond)
		}
		h.watcher.begin()
		h.change(func() { clear(h.servers) })
		h.watcher.finish(false)
		if got := h.reported(time.Hour); len(got) > 0 {
			t.Errorf("it reports %d times, at first %q", len(got), got[0])
		}
	})
}

// After a partial sync has moved servers, the watcher inspects the new servers.
func TestMovedServersAreInspected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newInspectedHost(t)
		h.watcher.begin()
		old, next := map[key]wanted{server(7): {}},
			map[key]wanted{server(8): {scheduler: "rr", endpoints: []plan.Endpoint{{Addr: endpoint(8, 0)}}}}
		h.watcher.replaceServers(old, next)
		h.change(func() {
			delete(h.servers, server(7))
			delete(h.endpts[server(8).at], endpoint(8, 1))
		})
		h.watcher.finish(true)
		if got := h.reported(time.Hour); len(got) > 0 {
			t.Errorf("it reports %q", got)
		}
	})
}

// The watcher limits its requests per second, and lists all servers less often if the kernel responds slowly.
func TestInspectionIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newInspectedHost(t)
		const seconds = 600
		h.reported(seconds * time.Second)
		if h.lists < seconds/6 || h.lists > seconds/5+1 || h.endpointRequests < seconds*maxServersPerPoll/2 ||
			h.endpointRequests > seconds*maxServersPerPoll {
			t.Errorf("%d lists and %d questions for endpoints in %d s", h.lists, h.endpointRequests, seconds)
		}
		h.change(func() { h.lists, h.listDuration = 0, time.Second })
		h.reported(seconds * time.Second)
		if h.lists > seconds/listPauseFactor+1 {
			t.Errorf("%d lists of %v in %d s", h.lists, h.listDuration, seconds)
		}
	})
}
