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

// nameServersPeriod is the time between two readings of the files with the name servers.
const nameServersPeriod = 20 * time.Second

// unsteadyPause is the time before the state is read again that changed while it was read.
const unsteadyPause = time.Second

// The pause after a failed reading, doubled from the first value to the second.
const (
	minPause = 100 * time.Millisecond
	maxPause = 10 * time.Second
)

// Watcher keeps a Host up to date. All methods but Run may be called from any goroutine.
type Watcher struct {
	log     *slog.Logger
	foreign *foreign
	tables  []int // see Options.IgnoreTables
	kernel  rtnl.Kernel
	resolv  []string // see Options.ResolvConf
	routes  wantedRoutes
	host    atomic.Pointer[Host]
	once    sync.Once
	ready   chan struct{}
	changed chan struct{}
	moved   chan struct{}
}

// Options say what a Watcher leaves out, which is what proxies make, and where notices come from.
type Options struct {
	// IgnoreDevices are names of interfaces whose addresses are not the host's own, such as those that a proxy binds.
	// Host lacks them, and their changes are no events.
	IgnoreDevices []string
	// IgnoreTables are numbers of routing tables, less than 256, whose routes are no events.
	IgnoreTables []int
	// Ranges are those that Host.Routes is about, and IgnoreProtocol is the routing protocol of routes that it lacks.
	Ranges         []netip.Prefix
	IgnoreProtocol netlink.RouteProtocol
	// Kernel sends the notices; rtnl.Host if it is nil.
	Kernel rtnl.Kernel
	// ResolvConf are the files that name the host's name servers; the usual ones if it is nil.
	ResolvConf []string
}

// New makes a watcher that knows nothing until Run has read the addresses once.
func New(logger *slog.Logger, opts Options) *Watcher {
	w := &Watcher{
		log: logger, foreign: newForeign(opts.IgnoreDevices), tables: opts.IgnoreTables, kernel: opts.Kernel,
		resolv: opts.ResolvConf, routes: wantedRoutes{opts.Ranges, opts.IgnoreProtocol},
		ready: make(chan struct{}), changed: make(chan struct{}, 1), moved: make(chan struct{}, 1),
	}
	if w.resolv == nil {
		w.resolv = resolvConf()
	}
	w.host.Store(&Host{})
	return w
}

// Ready is closed when Host has been read once.
func (w *Watcher) Ready() <-chan struct{} { return w.ready }

// Changed receives after Host has changed. One value may announce many changes. The first reading is not a change.
func (w *Watcher) Changed() <-chan struct{} { return w.changed }

// Moved receives after anything of the host's network may have changed: interfaces, addresses, routes (except the
// ignored ones), routing rules, and the settings of interfaces in net.ipv4.conf and net.ipv6.conf, net.ipv4.ip_forward
// among them. One value may announce many changes.
func (w *Watcher) Moved() <-chan struct{} { return w.moved }

// Host returns the present state. Before Ready it is empty, but not nil.
func (w *Watcher) Host() *Host { return w.host.Load() }

// Run watches the network namespace of the calling thread until ctx ends. It logs failures and tries again; it returns
// nil.
func (w *Watcher) Run(ctx context.Context) error {
	events := make(chan struct{}, 1)
	network := rtnl.New(rtnl.Options{
		Logger: w.log, Kernel: w.kernel,
		Topics:  rtnl.Links | rtnl.Addresses | rtnl.Routes | rtnl.Rules | rtnl.Settings,
		Note:    w.note,
		Lost:    func() { tell(w.moved) },
		Changed: func() { tell(events) },
	})
	_ = network.Open() // before the first reading; if it fails, Run tries again and says so
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
			w.log.Warn("reading the host's addresses failed", "error", err, "retry_in", pause)
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

// await returns when the state is to be read, or with false when ctx ends. Meanwhile it reads the files with the name
// servers.
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

// note announces what moved, and reports whether the state may be another one.
func (w *Watcher) note(m *syscall.NetlinkMessage) bool {
	if !w.ignores(m.Header.Type, m.Data) {
		tell(w.moved)
	}
	return w.relevant(m.Header.Type, m.Data)
}

// ignores reports whether a message is about a route of an ignored table.
func (w *Watcher) ignores(messageType uint16, data []byte) bool {
	if messageType != unix.RTM_NEWROUTE && messageType != unix.RTM_DELROUTE {
		return false
	}
	// The fifth byte of struct rtmsg of rtnetlink(7) is the table.
	return len(data) > 4 && slices.Contains(w.tables, int(data[4]))
}

// tell announces something, unless the receiver has not read the last announcement yet.
func tell(to chan<- struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}

// Read returns the state of the network namespace of the calling thread.
func Read(opts Options) (*Host, error) {
	w := New(slog.New(slog.DiscardHandler), opts)
	_, err := w.read()
	return w.Host(), err
}

// read lists the host's state and publishes it if it is new.
func (w *Watcher) read() (steady bool, err error) {
	next, steady, err := list(w.foreign, w.routes)
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
	tell(w.changed)
	return steady, nil
}
