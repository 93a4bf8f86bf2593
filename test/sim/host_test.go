package sim

import (
	"context"
	"net/netip"
	"slices"
	"sync"

	"github.com/fsnotify/fsnotify"

	"edgeway/daemon/files"
	"edgeway/daemon/nodeinfo"
)

// host replaces nodeinfo and inotify, because both block in the kernel, outside the synctest bubble.
type host struct {
	mu       sync.Mutex
	now      *nodeinfo.Host
	ready    chan struct{}
	changed  chan struct{}
	watchers []*watcher
}

type watcher struct {
	events chan fsnotify.Event
	errors chan error
}

func newHost() *host {
	h := &host{ready: make(chan struct{}), changed: make(chan struct{}, 1)}
	close(h.ready)
	h.setAddr("192.0.2.1")
	return h
}

func (h *host) setAddr(addr string) {
	next := &nodeinfo.Host{
		Addrs: []nodeinfo.Addr{
			{Addr: netip.MustParseAddr("127.0.0.1"), Interface: "lo"},
			{Addr: netip.MustParseAddr(addr), Interface: "eth0", Primary: true},
			{Addr: netip.MustParseAddr("::1"), Interface: "lo"},
		},
		Gateways: []netip.Addr{netip.MustParseAddr("192.0.2.254")},
	}
	h.mu.Lock()
	h.now = next
	h.mu.Unlock()
	select {
	case h.changed <- struct{}{}:
	default:
	}
}

func (h *host) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (h *host) Ready() <-chan struct{}   { return h.ready }
func (h *host) Changed() <-chan struct{} { return h.changed }

func (h *host) Host() *nodeinfo.Host {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

// newWatcher returns a watcher that receives events from notifyWatchers instead of inotify.
func (h *host) newWatcher() (*files.Watcher, error) {
	w := &watcher{events: make(chan fsnotify.Event, 256), errors: make(chan error)}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.watchers = append(h.watchers, w)
	return &files.Watcher{
		Events: w.events, Errors: w.errors,
		Add: func(string) error { return nil },
		Close: func() error {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.watchers = slices.DeleteFunc(h.watchers, func(o *watcher) bool { return o == w })
			return nil
		},
	}, nil
}

// notifyWatchers sends an event to all watchers. Each watcher ignores the paths that it does not watch.
func (h *host) notifyWatchers(path string, op fsnotify.Op) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, w := range h.watchers {
		select {
		case w.events <- fsnotify.Event{Name: path, Op: op}:
		default: // inotify's queue can also overflow, and a poll then finds the change
		}
	}
}
