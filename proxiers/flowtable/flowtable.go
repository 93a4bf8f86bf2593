// Package flowtable takes the connections of Services that opted in off the way through the rules (KEP-4963). The kernel
// then forwards their packets from one device to the other by a table of its own, the flowtable: no rule sees them, and
// neither does the routing table.
//
// # Which connections
//
// A rule at the end of the forward hook offers a connection to the flowtable when it was seen in both directions, its
// destination was translated, and its original destination is one of a Service that opted in. The KEP marks packets
// before they are translated, and offers what has the mark, since its authors found no way to look for the original port
// in a set. There is one: nft, from 1.0.6 on, takes "ct original proto-dst" as a key where the same rule says that the
// protocol is TCP or UDP. So no bit of the mark is needed, and none of another program is touched: the KEP's rules clear
// all but 15 bits of every forwarded packet, and offer nothing that has one of the others set.
//
// The rule is the last of its hook, behind those of a firewall: what a firewall drops is not offered. For the same reason
// the flowtable comes last among what sees the packets of a device.
//
// With a threshold the devices join when a first connection has passed it: before, short connections would pay for their hooks.
//
// # What ends it
//
// A connection that is in the flowtable stays there when the rule is gone. To send all of them back to the rules,
// the table is written anew as a whole, in one transaction, in which no packet is lost (Linux 6.1, 6.12, 7.2). That is done when
// a Service opts out or loses an endpoint, a frontend or a source range, in each full sync, and, once a second at most, when
// another program has changed rules of its own that forwarded packets meet: they may drop what is in the flowtable now. What is still
// wanted comes back with its next packet. Of other programs only the rules are read, and only of tables in which something has changed.
package flowtable

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/links"
	"edgeway/proxiers/internal/nfnetlink"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
)

// Name is the follower's.
const Name = "flowtable"

// Options are what an operator decides.
type Options struct {
	// AfterPackets is how many packets a connection has had, in both directions, before it leaves the rules; 0: as soon as
	// it was answered.
	AfterPackets int
	// Devices are patterns of the devices whose packets may leave the rules (see plan.CheckInterface), Exclude of those that
	// may not. No Devices: all.
	Devices, Exclude []string
	// Hardware has the network devices themselves forward, where the drivers of all of them can.
	Hardware bool
	// Shared lists the tables in which backends have chains beside those of other programs.
	Shared []proxiers.SharedTable
}

// Component describes the follower.
func Component(opts Options) proxiers.Component {
	return proxiers.Component{
		Name:  Name,
		Probe: func(ctx context.Context) error { return probe(ctx, opts) },
		New: func(_ context.Context, env proxiers.Env) (proxiers.Proxier, error) {
			f, err := newFollower(env, opts)
			if err != nil {
				return nil, err
			}
			return f, nil
		},
		Cleanup: func(ctx context.Context, _ proxiers.Env) error { return nfttable.Cleanup(ctx, tableName) },
	}
}

// follower keeps the table. What other goroutines read, too, is written with mu held.
type follower struct {
	env      proxiers.Env
	opts     Options
	nft      *nfttable.Program
	monitor  *nfnetlink.Monitor
	links    *links.Links
	watching sync.WaitGroup

	// have is what the table has, and devices those of the flowtable, by index. nil: not known.
	have    *contents
	devices map[int]string
	// lacking is the index of a device whose driver forwards nothing; 0: none is known.
	lacking int

	mu sync.Mutex
	// due is when each later work is to be done, zero: never. written is when the table was last written, or the rules of other
	// programs were last read.
	due     [numWorks]time.Time
	written time.Time
	// touched is what other programs have changed since then.
	touched map[tableID]*touched
	// waiting says that no device has joined yet (see waits).
	waiting bool
	// unavailable is why there is no fast path on this host, and degraded why there is none of the hardware; nil: there is.
	unavailable, degraded error
	plan                  *plan.Plan
	// offloads are names of the devices of the flowtable.
	offloads []string
	writes   counts
}

// newFollower opens sockets in the network namespace of the calling thread. It changes nothing.
func newFollower(env proxiers.Env, opts Options) (*follower, error) {
	f := &follower{env: env, opts: opts, waiting: opts.waits(), touched: map[tableID]*touched{}}
	var err error
	if f.nft, err = nfttable.FindProgram(); err != nil {
		f.unavailable = err
	}
	f.monitor, err = nfnetlink.NewMonitor(nfnetlink.MonitorOptions{Notify: env.Drift, Concerns: f.concerns})
	if err != nil {
		return nil, fmt.Errorf("subscription to nftables notices: %w", err)
	}
	if f.links, err = links.Open(env, f.linksChanged); err != nil {
		_ = f.monitor.Close()
		return nil, err
	}
	env.Contain.Go(&f.watching, "nftables notices", f.monitor.Run)
	return f, nil
}

// Apply implements proxiers.Applier.
func (f *follower) Apply(ctx context.Context, change proxiers.Change) error {
	if change.Prev == nil {
		return f.full(ctx, change.Next)
	}
	f.note(change.Next)
	if f.blocked() || !concerned(change) {
		return nil
	}
	next := contentsOf(change.Next, f.env.Families)
	more, only := next.beyond(f.have)
	only = only && !cuts(change)
	var err error
	switch {
	case only && more.empty():
	case only && !f.have.idle():
		err = f.commit(ctx, more.elements())
	default:
		err = f.rewrite(ctx, next, ofServices)
	}
	if err != nil {
		f.have = nil
		return fmt.Errorf("partial sync: %w", err)
	}
	f.have = next
	return nil
}

// full writes the table, whatever it has.
func (f *follower) full(ctx context.Context, next *plan.Plan) error {
	f.have = nil
	f.monitor.Forget()
	f.note(next)
	if err := f.probe(ctx); err != nil {
		return err
	}
	if f.blocked() {
		return nil
	}
	if err := f.links.Watch(&f.watching); err != nil {
		return err
	}
	f.links.Forget()
	wanted := contentsOf(next, f.env.Families)
	if err := f.rewrite(ctx, wanted, ofSync); err != nil {
		return fmt.Errorf("full sync: %w", err)
	}
	f.have = wanted
	return nil
}

// note keeps the plan, for who asks.
func (f *follower) note(p *plan.Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = p
}

func (f *follower) blocked() bool { return f.Unavailable() != nil }

// Unavailable implements proxiers.Offloader.
func (f *follower) Unavailable() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.unavailable
}

// rewrite writes the table anew, so that all connections are with the rules again.
func (f *follower) rewrite(ctx context.Context, wanted *contents, why reason) error {
	idle := wanted.idle()
	f.settled(idle)
	if idle {
		f.use(nil)
		return f.commit(ctx, noTable)
	}
	err := f.withDevices(func(devices map[int]string) error { return f.write(ctx, wanted, devices) })
	if err == nil {
		f.writes[why].Add(1)
	}
	return err
}

// addDevices has the flowtable know the devices that came since. Those that went have left it by themselves.
func (f *follower) addDevices(ctx context.Context) error {
	err := f.withDevices(func(devices map[int]string) error {
		fresh := maps.Clone(devices)
		maps.DeleteFunc(fresh, func(index int, name string) bool { return f.devices[index] == name })
		if len(fresh) == 0 {
			return nil
		}
		err := f.monitor.Commit(more(names(fresh)), false)
		if errors.Is(err, nfnetlink.ErrTouched) {
			return nil // a full sync comes
		}
		return err
	})
	if nfttable.Refused(err, unix.EOPNOTSUPP) {
		return f.rewrite(ctx, f.have, ofDevices)
	}
	return err
}

// more is the transaction that adds devices to the flowtable. A program for each device that comes would be much where pods
// do.
func more(devices []string) *nfnetlink.Batch {
	// From the kernel's linux/netfilter/nf_tables.h: NFTA_FLOWTABLE_NAME, _HOOK, NFTA_FLOWTABLE_HOOK_DEVS, NFTA_DEVICE_NAME.
	const name, hook, devs, device = 2, 3, 3, 1
	batch := &nfnetlink.Batch{}
	for chunk := range slices.Chunk(devices, devicesPerCommand) {
		batch.Add(unix.NFT_MSG_NEWFLOWTABLE, 0, unix.NFPROTO_INET, func(b []byte) []byte {
			b = nfnetlink.AppendAttr(b, nfnetlink.AttrTable, tableName)
			b = nfnetlink.AppendAttr(b, name, fastpath)
			b, outer := nfnetlink.Begin(b, hook|nfnetlink.Nested)
			b, inner := nfnetlink.Begin(b, devs|nfnetlink.Nested)
			for _, d := range chunk {
				b = nfnetlink.AppendAttr(b, device, d)
			}
			nfnetlink.End(b, inner)
			nfnetlink.End(b, outer)
			return b
		})
	}
	return batch
}

// attempts is how often commands are tried that name a device which has just gone: the kernel then refuses all of them.
const attempts = 5

// withDevices does something about the devices that there are. After a refusal those are left out that have come or gone
// meanwhile: on a host whose devices do so all the time the others must not wait for them.
func (f *follower) withDevices(do func(devices map[int]string) error) error {
	devices, err := f.wanted()
	for attempt := 1; err == nil; attempt++ {
		err = do(devices)
		switch {
		case err == nil:
			f.use(devices)
			if attempt > 1 {
				f.linksChanged()
			}
			return nil
		case !nfttable.Refused(err, unix.ENOENT) || attempt == attempts:
			return fmt.Errorf("table with %d devices: %w", len(devices), err)
		}
		var now map[int]string
		f.links.Forget()
		now, err = f.wanted()
		maps.DeleteFunc(devices, func(index int, name string) bool { return now[index] != name })
	}
	return err
}

// use notes the devices of the flowtable.
func (f *follower) use(devices map[int]string) {
	f.devices = devices
	f.mu.Lock()
	defer f.mu.Unlock()
	f.offloads = names(devices)
}

// settled says that what was noticed so far is done with the transaction that comes, which removes the table if there is nothing
// to take: then the devices wait again.
func (f *follower) settled(idle bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.due, f.written = [numWorks]time.Time{}, time.Now()
	clear(f.touched)
	f.waiting = f.waiting || idle && f.opts.waits()
	if f.waiting {
		f.due[ask] = f.written.Add(askPause)
	}
}

// commit has the kernel do a transaction of one notice.
func (f *follower) commit(ctx context.Context, commands string) error {
	return f.monitor.Own(1, false, func() error { return f.nft.Run(ctx, commands) })
}

// Close leaves the table.
func (f *follower) Close() error {
	f.links.Close()
	err := f.monitor.Close()
	f.watching.Wait()
	return err
}

func names(devices map[int]string) []string {
	out := make([]string, 0, len(devices))
	for _, name := range devices {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
