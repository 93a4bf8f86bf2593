// Package flowtable offloads connections to the kernel's fast path if their Service opted in (KEP-4963). The kernel
// then forwards an offloaded connection's packets between two devices without evaluating rules or consulting the
// routing table.
//
// A rule at the end of the forward hook offers connections to the flowtable. The rule matches a connection if its
// original destination belongs to a Service that opted in, and the kernel has translated the destination. The kernel
// must also have seen packets in both directions.
//
// The KEP's rules mark packets before translation, and later offer only marked packets to the flowtable. The KEP's
// authors found no way to look up the original port in an nftables set. However, nft 1.0.6 and newer accept "ct
// original proto-dst" as a set key if the same rule matches on the protocol TCP or UDP. This package therefore needs no
// packet mark, and does not change other programs' marks. The KEP's rules clear the 17 highest bits of every forwarded
// packet's mark. The KEP's rules also never offer a packet to the flowtable if another program has set bits in the
// packet's mark.
//
// The rule runs last in the forward hook, so packets that a firewall drops never reach it. The flowtable's hook also
// runs last on each device, so other ingress hooks can still drop a packet.
//
// The flowtable contains all network devices, because the kernel offloads a connection only if both of the connection's
// devices are in the flowtable.
//
// A connection stays in the flowtable even after the follower removes the rule. To make all connections pass through
// the rules again, the follower therefore replaces the whole nftables table in one transaction. The kernel drops no
// packets during the transaction (Linux 6.1, 6.12, 7.2).
//
// The follower replaces the nftables table in each full sync, and when a Service opts in or out. The follower also
// replaces the nftables table when a Service that opted in gains a frontend, or loses a frontend, an endpoint or a
// source range. When a network device appears, or another program changes rules for forwarded packets, the follower
// also replaces the nftables table, but at most once a second. Without the replacement, another program's new rule
// could not drop an offloaded connection. If the rules still allow offloading, a connection returns to the flowtable
// with its next packet. The follower reads rules only from nftables tables that another program has changed.
package flowtable

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/internal/links"
	"edgeway/proxiers/internal/netlink"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/plan"
)

// Name is the flowtable follower's name.
const Name = "flowtable"

// Component describes the flowtable follower. shared lists the nftables tables that a backend shares with other
// programs.
func Component(shared []proxiers.SharedTable) proxiers.Component {
	return proxiers.Component{
		Name:  Name,
		Probe: probe,
		New: func(_ context.Context, env proxiers.Env) (proxiers.Proxier, error) {
			f, err := newFollower(env, shared)
			if err != nil {
				return nil, err
			}
			return f, nil
		},
		Cleanup: func(ctx context.Context, _ proxiers.Env) error { return nfttable.Cleanup(ctx, tableName) },
	}
}

// follower maintains the nftables table that contains the flowtable. The goroutines that receive notifications also use
// the fields below mu.
type follower struct {
	env      proxiers.Env
	shared   []proxiers.SharedTable
	nft      *nfttable.Program
	watcher  *netlink.Watcher
	links    *links.Links
	watching sync.WaitGroup

	// tableContents holds the contents of the nftables table, and devices holds the names of the flowtable's devices by
	// index. If either field is nil, the corresponding kernel state is unknown.
	tableContents *contents
	devices       map[int]string

	mu sync.Mutex
	// nextInspection is the time of the next inspection, or the zero time if no inspection is scheduled. lastInspection
	// is the time when the follower last wrote the nftables table or read other programs' rules.
	nextInspection time.Time
	lastInspection time.Time
	// foreignChanges holds the changes that other programs have made to nftables tables since lastInspection.
	foreignChanges map[tableID]*tableChanges
	// unavailableErr explains why this host has no fast path, or is nil if the fast path works.
	unavailableErr error
	plan           *plan.Plan
	// deviceNames holds the names of the flowtable's devices.
	deviceNames []string
	writes      counts
}

// newFollower opens sockets in the calling thread's network namespace, but changes nothing on the host.
func newFollower(env proxiers.Env, shared []proxiers.SharedTable) (*follower, error) {
	f := &follower{env: env, shared: shared, foreignChanges: map[tableID]*tableChanges{}}
	var err error
	if f.nft, err = nfttable.FindProgram(); err != nil {
		f.unavailableErr = err
	}
	f.watcher, err = netlink.NewWatcher(netlink.WatcherOptions{Notify: env.Drift, AffectedObject: f.classify})
	if err != nil {
		return nil, fmt.Errorf("subscription to nftables notifications: %w", err)
	}
	if f.links, err = links.Open(env, f.scheduleInspection); err != nil {
		_ = f.watcher.Close()
		return nil, err
	}
	env.Contain.Go(&f.watching, "nftables notices", f.watcher.Run)
	return f, nil
}

func (f *follower) Apply(ctx context.Context, change proxiers.Change) error {
	if change.Prev == nil {
		return f.fullSync(ctx, change.Next)
	}
	f.note(change.Next)
	if f.blocked() || !affectsTable(change) {
		return nil
	}
	next := contentsOf(change.Next, f.env.Families)
	if reflect.DeepEqual(next, f.tableContents) && !mayInvalidate(change) {
		return nil
	}
	if err := f.rewrite(ctx, next, ofServices); err != nil {
		f.tableContents = nil
		return fmt.Errorf("partial sync: %w", err)
	}
	f.tableContents = next
	return nil
}

// fullSync rewrites the nftables table, regardless of its current contents.
func (f *follower) fullSync(ctx context.Context, next *plan.Plan) error {
	f.tableContents = nil
	f.watcher.Forget()
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
	f.tableContents = wanted
	return nil
}

func (f *follower) note(p *plan.Plan) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.plan = p
}

func (f *follower) blocked() bool { return len(f.Faults()) > 0 }

// Faults returns a fault if this host has no fast path.
func (f *follower) Faults() []fault.Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.unavailableErr == nil {
		return nil
	}
	return []fault.Fault{{ID: proxiers.FastPathFault, Severity: fault.Warning, Message: f.unavailableErr.Error()}}
}

// maxAttempts is the maximum number of attempts to write the nftables table. The kernel rejects a transaction that
// names a device that no longer exists.
const maxAttempts = 5

// rewrite replaces the nftables table with one whose flowtable contains the current devices. Replacing the table makes
// all connections pass through the rules again. If the kernel rejects the commands, rewrite tries again without the
// devices that have appeared or vanished since the last attempt. Constantly changing devices therefore do not prevent
// offloading on stable devices.
func (f *follower) rewrite(ctx context.Context, wanted *contents, why reason) error {
	f.clearDeferred()
	if wanted.idle() {
		f.use(nil)
		return f.commit(ctx, removeCommands)
	}
	devices, err := f.listDevices()
	for attempt := 1; err == nil; attempt++ {
		err = f.commit(ctx, tableCommands(wanted, names(devices)))
		switch {
		case err == nil:
			f.use(devices)
			f.writes[why].Add(1)
			if attempt > 1 {
				f.scheduleInspection()
			}
			return nil
		case !nfttable.HasErrno(err, unix.ENOENT) || attempt == maxAttempts:
			return fmt.Errorf("nftables table with %d devices: %w", len(devices), err)
		}
		var now map[int]string
		f.links.Forget()
		now, err = f.listDevices()
		maps.DeleteFunc(devices, func(index int, name string) bool { return now[index] != name })
	}
	return err
}

// listDevices returns the names of the network devices by index. listDevices omits devices whose names have a special
// meaning in nft.
func (f *follower) listDevices() (map[int]string, error) {
	all, err := f.links.List()
	if err != nil {
		return nil, err
	}
	out := map[int]string{}
	for index, device := range all {
		if !strings.HasSuffix(device.Name, "*") && plan.ValidateInterface(device.Name) == nil {
			out[index] = device.Name
		}
	}
	return out, nil
}

// hasNewDevices reports whether the host has devices that the flowtable lacks. The kernel itself removes vanished
// devices from the flowtable.
func (f *follower) hasNewDevices() (bool, error) {
	present, err := f.listDevices()
	for index, name := range present {
		if f.devices[index] != name {
			return true, err
		}
	}
	return false, err
}

func (f *follower) use(devices map[int]string) {
	f.devices = devices
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deviceNames = names(devices)
}

// clearDeferred cancels the deferred work, because the next transaction rewrites the whole nftables table.
func (f *follower) clearDeferred() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.nextInspection, f.lastInspection = time.Time{}, time.Now()
	clear(f.foreignChanges)
}

func (f *follower) commit(ctx context.Context, commands string) error {
	return f.watcher.RunCommit(1, false, func() error { return f.nft.Run(ctx, commands) })
}

func (f *follower) Close() error {
	f.links.Close()
	err := f.watcher.Close()
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
