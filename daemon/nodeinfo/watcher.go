package nodeinfo

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// debounce is how long events are gathered before the state is read: an interface that comes up sends
// several.
const debounce = 50 * time.Millisecond

// unsteadyPause is when the state is read again that changed while it was read.
const unsteadyPause = time.Second

// The pause after a failure, doubled from the first value to the second.
const (
	minPause = 100 * time.Millisecond
	maxPause = 10 * time.Second
)

// receiveBuffer holds the events of some thousands of interfaces. When it overflows the kernel says so,
// which is an event like any other.
const receiveBuffer = 1 << 20

// Watcher keeps a Host up to date. Its methods, but for Run, may be called from any goroutine.
type Watcher struct {
	log     *slog.Logger
	foreign *foreign
	tables  []int // see Ignored
	host    atomic.Pointer[Host]
	once    sync.Once
	ready   chan struct{}
	changed chan struct{}
	moved   chan struct{}

	sockets sockets
}

// Ignored is what proxies make.
type Ignored struct {
	// Devices are names of interfaces whose addresses are not the host's own, as those that a proxy binds: they are left out, and
	// their changes are no events.
	Devices []string
	// RouteTables are numbers of routing tables, less than 256, whose routes are no events.
	RouteTables []int
}

// New makes a watcher that knows nothing until Run has read the addresses once.
func New(logger *slog.Logger, ignore Ignored) *Watcher {
	w := &Watcher{
		log: logger, foreign: newForeign(ignore.Devices), tables: ignore.RouteTables,
		ready: make(chan struct{}), changed: make(chan struct{}, 1), moved: make(chan struct{}, 1),
	}
	w.host.Store(&Host{})
	return w
}

// Ready is closed when Host has been read once.
func (w *Watcher) Ready() <-chan struct{} { return w.ready }

// Changed receives after Host became another one than before. Many changes may be announced at once;
// the first reading is none.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Moved receives after anything of the host's network may have changed: interfaces, addresses, all routes but those that are
// ignored, rules of routing, and the settings of interfaces in net.ipv4.conf and net.ipv6.conf, net.ipv4.ip_forward among them. Many
// changes may be announced at once.
func (w *Watcher) Moved() <-chan struct{} { return w.moved }

// Host gives the present state; empty, never nil, before Ready.
func (w *Watcher) Host() *Host { return w.host.Load() }

// Run watches the network namespace of the calling thread until ctx ends. Failures are logged and tried
// again; it returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	pause := minPause
	for {
		worked, err := w.watch(ctx)
		if err == nil {
			return nil
		}
		if worked {
			pause = minPause
		}
		w.log.Warn("watching the host's addresses failed", "error", err, "retry_in", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, maxPause)
	}
}

// watch subscribes, reads, and reads again after events, until something fails, or without an error when
// ctx ends. worked says that it read at least once.
func (w *Watcher) watch(ctx context.Context) (worked bool, err error) {
	socket, err := nl.Subscribe(unix.NETLINK_ROUTE, unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR,
		unix.RTNLGRP_IPV6_IFADDR, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
		unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_IPV4_NETCONF, unix.RTNLGRP_IPV6_NETCONF)
	if err != nil {
		return false, fmt.Errorf("subscribe to rtnetlink: %w", err)
	}
	// Larger than net.core.rmem_max needs CAP_NET_ADMIN; without it the default has to do.
	_ = socket.SetReceiveBufferSize(receiveBuffer, true)
	events, failed := make(chan struct{}, 1), make(chan error, 1)
	var receiver sync.WaitGroup
	receiver.Go(func() { failed <- w.receive(socket, events) })
	defer receiver.Wait()
	defer socket.Close() // ends the receiver

	for {
		steady, err := w.read()
		if err != nil {
			return worked, err
		}
		worked = true
		var again <-chan time.Time
		if !steady {
			again = time.After(unsteadyPause)
		}
		if ended, err := w.await(ctx, failed, again, events); ended {
			return worked, err
		}
		select {
		case <-ctx.Done():
			return worked, nil
		case <-time.After(debounce):
		}
		// What was announced meanwhile is part of what is read now.
		select {
		case <-events:
		default:
		}
	}
}

// await returns when something may have moved, or with true when the watch ends. Meanwhile it looks who listens.
func (w *Watcher) await(ctx context.Context, failed <-chan error, again <-chan time.Time, events <-chan struct{}) (ended bool, err error) {
	tick := time.NewTicker(listenersPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case err := <-failed:
			return true, err
		case <-again:
			return false, nil
		case <-events:
			return false, nil
		case <-tick.C:
			w.refresh(true)
		}
	}
}

// receive announces the events that matter until the socket fails or is closed.
func (w *Watcher) receive(socket *nl.NetlinkSocket, events chan<- struct{}) error {
	for {
		msgs, _, err := socket.Receive()
		matters, moved := false, false
		switch {
		case errors.Is(err, unix.ENOBUFS):
			matters, moved = true, true // events were lost, the subscription goes on
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil:
			return fmt.Errorf("receive from rtnetlink: %w", err)
		}
		for _, m := range msgs {
			matters = matters || w.foreign.relevant(m.Header.Type, m.Data)
			moved = moved || !w.ignores(m.Header.Type, m.Data)
		}
		if moved {
			tell(w.moved)
		}
		if matters {
			tell(events)
		}
	}
}

// ignores says that a message is about a route of a table that is ignored.
func (w *Watcher) ignores(messageType uint16, data []byte) bool {
	if messageType != unix.RTM_NEWROUTE && messageType != unix.RTM_DELROUTE {
		return false
	}
	// The fifth byte of struct rtmsg of rtnetlink(7) is the table.
	return len(data) > 4 && slices.Contains(w.tables, int(data[4]))
}

// tell announces something, unless it was and nobody has heard it yet.
func tell(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// read lists the host's state and publishes it when it is new.
func (w *Watcher) read() (steady bool, err error) {
	next, steady, err := list(w.foreign)
	if err != nil {
		return false, err
	}
	w.sockets.mu.Lock()
	defer w.sockets.mu.Unlock()
	next.Listeners = w.sockets.list(w.log)
	first := false
	w.once.Do(func() {
		first = true
		w.host.Store(next)
		close(w.ready)
	})
	before := w.host.Swap(next)
	same := next.sameNetwork(before)
	if first || same && slices.Equal(next.Listeners, before.Listeners) {
		return steady, nil
	}
	if !same {
		w.log.Info("the host's addresses changed", "addresses", len(next.Addrs), "gateways", len(next.Gateways))
	}
	tell(w.changed)
	return steady, nil
}
