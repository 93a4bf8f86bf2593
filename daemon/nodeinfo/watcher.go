package nodeinfo

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"edgeway/proxiers/contain"
	"edgeway/proxiers/rtnl"
)

// nameServersPeriod is the time between two reads of the files that list the name servers.
const nameServersPeriod = 20 * time.Second

// unsteadyPause is the delay before the next read if the host's state changed during the last read.
const unsteadyPause = time.Second

// After each failed read, the Watcher doubles the pause before the next read, from minPause up to maxPause.
const (
	minPause = 100 * time.Millisecond
	maxPause = 10 * time.Second
)

// Watcher keeps a Host up to date. All methods except Run are safe for concurrent use.
type Watcher struct {
	log     *slog.Logger
	devices []string // see Options.IgnoreDevices
	tables  []int    // see Options.IgnoreTables
	kernel  rtnl.Kernel
	resolv  []string // see Options.ResolvConf
	routes  routeFilter
	host    atomic.Pointer[Host]
	once    sync.Once
	ready   chan struct{}
	changed chan struct{}
	moved   chan struct{}
}

// Options configures a Watcher. Most options name devices, routing tables and protocols that proxies use and that the
// Watcher ignores.
type Options struct {
	// IgnoreDevices are the names of interfaces whose addresses are not the host's own, such as interfaces that a proxy
	// adds Service addresses to. Host omits the addresses of ignored interfaces.
	IgnoreDevices []string
	// IgnoreTables are the numbers (below 256) of routing tables whose changes the Watcher ignores.
	IgnoreTables []int
	// Ranges are the address ranges that Host.Routes covers. Host.Routes omits routes whose protocol is
	// IgnoreProtocol.
	Ranges         []netip.Prefix
	IgnoreProtocol netlink.RouteProtocol
	// Kernel sends the notifications. If Kernel is nil, the Watcher uses rtnl.Host.
	Kernel rtnl.Kernel
	// ResolvConf lists the files that contain the host's name servers, or is nil for the default files.
	ResolvConf []string
}

// New returns a Watcher whose Host is empty until Run has read the host's state for the first time.
func New(logger *slog.Logger, opts Options) *Watcher {
	w := &Watcher{
		log: logger, devices: opts.IgnoreDevices, tables: opts.IgnoreTables, kernel: opts.Kernel,
		resolv: opts.ResolvConf, routes: routeFilter{opts.Ranges, opts.IgnoreProtocol},
		ready: make(chan struct{}), changed: make(chan struct{}, 1), moved: make(chan struct{}, 1),
	}
	if w.resolv == nil {
		w.resolv = resolvConf()
	}
	w.host.Store(&Host{})
	return w
}

// Ready returns a channel that is closed after the first read of the host's state.
func (w *Watcher) Ready() <-chan struct{} { return w.ready }

// Changed returns a channel that receives a value after Host has changed. A single value may stand for many changes.
// The first read does not count as a change.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// NetworkChanged returns a channel that receives a value after a possible change to the host's network: interfaces,
// addresses, routes (except in ignored tables), routing rules, and the settings in net.ipv4.conf, net.ipv6.conf and
// net.ipv4.ip_forward. A single value may stand for many changes.
func (w *Watcher) NetworkChanged() <-chan struct{} { return w.moved }

// Host returns the host's current state. The result is never nil, and is empty until Ready is closed.
func (w *Watcher) Host() *Host { return w.host.Load() }

// Run watches the network namespace of the calling thread until ctx is done. Run logs and retries failures, and
// returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	events := make(chan struct{}, 1)
	network := rtnl.New(rtnl.Options{
		Logger: w.log, Kernel: w.kernel,
		Topics:   rtnl.Links | rtnl.Addresses | rtnl.Routes | rtnl.Rules | rtnl.Settings,
		Note:     w.announce,
		OnLoss:   func() { signal(w.moved) },
		OnChange: func() { signal(events) },
	})
	_ = network.Open() // subscribe before the first read; Run logs and retries a failure
	ctx, cancel := context.WithCancel(ctx)
	panicked := make(chan error, 1)
	var watching sync.WaitGroup
	watching.Go(func() {
		panicked <- contain.Call(func() error {
			network.Run(ctx)
			return nil
		})
	})
	defer watching.Wait()
	defer cancel()
	pause := minPause
	for {
		var again <-chan time.Time
		switch steady, err := w.read(); {
		case err != nil:
			w.log.Warn("cannot read the host's addresses", "error", err, "retry_in", pause)
			again = time.After(pause)
			pause = min(2*pause, maxPause)
		case !steady:
			again = time.After(unsteadyPause)
		default:
			pause = minPause
		}
		if !w.await(ctx, again, events, panicked) {
			return nil
		}
	}
}

// await returns true when the host's state must be read, or false when ctx is done. While waiting, await polls the
// files that list the name servers.
func (w *Watcher) await(ctx context.Context, again <-chan time.Time, events <-chan struct{},
	panicked <-chan error,
) bool {
	tick := time.NewTicker(nameServersPeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-again:
			return true
		case <-events:
			return true
		case err := <-panicked:
			contain.Rethrow(err)
		case <-tick.C:
			if now := w.Host().NameServers; !slices.Equal(now, readNameServers(w.resolv, now)) {
				return true
			}
		}
	}
}

// announce signals a change to the network, and reports whether Host may have changed.
func (w *Watcher) announce(m *syscall.NetlinkMessage) bool {
	if !w.ignores(m.Header.Type, m.Data) {
		signal(w.moved)
	}
	return w.isRelevant(m.Header.Type, m.Data)
}

// ignores reports whether a message is about a route in an ignored routing table.
func (w *Watcher) ignores(messageType uint16, data []byte) bool {
	if messageType != unix.RTM_NEWROUTE && messageType != unix.RTM_DELROUTE {
		return false
	}
	// The fifth byte of struct rtmsg (rtnetlink(7)) is the number of the routing table.
	return len(data) > 4 && slices.Contains(w.tables, int(data[4]))
}

// isRelevant reports whether a message may announce a change to Host. The result is false for messages about routing
// rules, settings, and routes that Host omits. On a router, the kernel may send thousands of irrelevant messages per
// second.
func (w *Watcher) isRelevant(messageType uint16, data []byte) bool {
	switch messageType {
	case unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
		return w.routes.isRelevant(data)
	case unix.RTM_NEWRULE, unix.RTM_DELRULE, unix.RTM_NEWNETCONF, unix.RTM_DELNETCONF:
		return false
	}
	return true
}

// signal sends a value to the channel, unless the previous value is still unread.
func signal(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Read returns the Host of the calling thread's network namespace.
func Read(opts Options) (*Host, error) {
	w := New(slog.New(slog.DiscardHandler), opts)
	_, err := w.read()
	return w.Host(), err
}

// read reads the host's state, and publishes it if it has changed.
func (w *Watcher) read() (steady bool, err error) {
	next, steady, err := listHost(w.devices, w.routes)
	if err != nil {
		return false, err
	}
	next.NameServers = readNameServers(w.resolv, w.Host().NameServers)
	first := false
	w.once.Do(func() {
		first = true
		w.host.Store(next)
		close(w.ready)
	})
	before := w.host.Swap(next)
	if first || next.equal(before) {
		return steady, nil
	}
	w.log.Info("the host's addresses changed", "addresses", len(next.Addrs), "gateways", len(next.Gateways),
		"name_servers", len(next.NameServers))
	signal(w.changed)
	return steady, nil
}
