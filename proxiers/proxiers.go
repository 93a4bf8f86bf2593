// Package proxiers defines the contract between the daemon and the proxiers. The daemon computes the plan, and the
// proxiers apply it to the host. The proxiers are one backend and the followers that run after it.
//
// A Component describes a backend or a follower. Component.New returns a running Proxier. A Proxier may implement
// further interfaces. For example, a Proxier with deferred work is a Maintainer, and a Proxier with metrics is a
// prometheus.Collector.
package proxiers

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// Change is the difference between the last applied plan and the next plan.
type Change struct {
	// A nil Prev means that the host's state is unknown, so Apply must read and correct that state (a full sync).
	Prev, Next *plan.Plan
	// Changed lists the ServicePorts in Next that are new or differ from Prev. Removed lists the ServicePorts in Prev
	// that are not in Next. Changed and Removed are in plan order. In a full sync, Changed lists all ServicePorts in
	// Next.
	Changed, Removed []*plan.ServicePort
}

// NewChange computes the difference between two plans. With 30,000 ServicePorts, NewChange takes 0.3 ms, so Proxiers
// should share the result of one call.
func NewChange(prev, next *plan.Plan) Change {
	changed, removed := plan.Diff(prev, next)
	return Change{Prev: prev, Next: next, Changed: changed, Removed: removed}
}

// Empty reports whether Prev and Next are equal, so that a partial sync has nothing to do.
func (c Change) Empty() bool {
	return c.Prev != nil && len(c.Changed)+len(c.Removed) == 0 && c.Prev.Node == c.Next.Node &&
		slices.EqualFunc(c.Prev.HealthChecks, c.Next.HealthChecks,
			func(a, b *plan.HealthCheck) bool { return a == b || *a == *b })
}

// Applier applies a plan to the host.
//
// Apply is idempotent, and returns when its context is done. Calls to Apply never overlap. After an error, the caller's
// next Change has a nil Prev. If Prev is not nil, the duration of Apply depends on the number of changes, not on the
// size of the plan. Prev is the plan that Apply last applied successfully, or an equal plan.
type Applier interface {
	Apply(ctx context.Context, change Change) error
}

// Proxier is a running backend or follower. Close releases the process's resources but leaves the kernel state in
// place, so the kernel keeps forwarding connections.
type Proxier interface {
	Applier
	Close() error
}

// Maintainer is a Proxier with deferred work, such as deleting idle entries or listening on a port that was in use. The
// daemon calls Due and Maintain on the goroutine that calls Apply.
type Maintainer interface {
	// Due returns the time when Maintain next has work to do, or the zero time if no work is left.
	Due() time.Time
	// Maintain runs the work that is due. Failed work becomes due again later. The caller logs Maintain's error but
	// does not repeat Apply.
	Maintain(ctx context.Context) error
}

// Reporter is a Proxier that reports its own faults. Any goroutine may call Faults.
type Reporter interface{ Faults() []fault.Fault }

// Counter is a Proxier that counts new connections if Env.CountConnections is set.
type Counter interface {
	// Connections calls add with the number of new connections for each ServicePort and kind of frontend. Connections
	// omits zeros. Connections may call add several times with the same svc and kind, so the caller must add up the
	// values of n. The counts start at 0 when a plan adds the ServicePort, and survive a restart of the daemon. Any
	// goroutine may call Connections.
	Connections(p *plan.Plan, add func(svc *plan.ServicePort, kind plan.FrontendKind, n uint64)) error
}

// Frontends identifies a ServicePort's frontends of one kind, in both families.
type Frontends struct {
	Name plan.ServicePortName
	Kind plan.FrontendKind
}

// Offloading describes the connections that currently bypass the nftables rules.
type Offloading struct {
	// Devices lists, in sorted order, the network devices that take part in offloading.
	Devices []string `json:"devices,omitempty"`
	// Services holds, in plan order, the ServicePorts that opted in to the fast path.
	Services []OffloadedService `json:"services,omitempty"`
}

// OffloadedService describes a ServicePort's currently offloaded connections. Packets and Bytes count the traffic since
// the connections started, and are zero if the kernel does not count traffic.
type OffloadedService struct {
	Name    plan.ServicePortName `json:"name"`
	Family  plan.Family          `json:"family"`
	Flows   int                  `json:"connections"`
	Packets uint64               `json:"packets,omitempty"`
	Bytes   uint64               `json:"bytes,omitempty"`
}

// Offloader is a Proxier that lets connections bypass the nftables rules. If this host cannot offload connections, the
// Offloader reports a fault with the ID FastPathFault.
type Offloader interface {
	// Offloading returns the connections that bypass the rules. Offloading is slow, because the kernel iterates over
	// all connections. Any goroutine may call Offloading.
	Offloading(ctx context.Context) (Offloading, error)
}

// Several packages use the following fault IDs.
const (
	// FastPathFault means that no connection can bypass the rules.
	FastPathFault = "fast-path"
	// PortFault means that Edgeway cannot listen on a port.
	PortFault = "ports"
)

// NewPortFault returns the fault for a port that Edgeway cannot listen on. object is the Service or configuration key
// that the port belongs to. The scope of the fault is limited to the given object and the listening address.
func NewPortFault(severity fault.Severity, at netip.AddrPort, object string, err error) fault.Fault {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno // a net.OpError repeats the address
	}
	return fault.Fault{
		ID: PortFault, Severity: severity, Object: fault.Object{Name: object},
		Scope:   fault.Scope{ServicePort: object, To: netip.PrefixFrom(at.Addr(), at.Addr().BitLen())},
		Message: fmt.Sprintf("Edgeway does not serve %s: %v", at, err),
		Fix:     "ss -tlnp  # shows which program listens on the port: stop the program, or change the port",
	}
}

// Path holds details of a connection's path that only the backend can report.
type Path struct {
	// Shortcut states whether a shortcut or the nftables rules translate the connection's addresses, and why. Shortcut
	// is "" if the backend has no shortcuts.
	Shortcut string
	// Scheduler is the kernel scheduler that chooses the endpoint, or "" if the rules choose it.
	Scheduler string
	// Server is the address and port of the IPVS virtual server.
	Server netip.AddrPort
	// Endpoints holds the endpoints that the scheduler chooses from.
	Endpoints map[netip.AddrPort]EndpointLoad
}

// EndpointLoad holds the scheduler's weight and connection counts for an endpoint. Weight is the endpoint's relative
// share of new connections.
type EndpointLoad struct {
	Weight   int `json:"weight,omitempty"`
	Active   int `json:"active,omitempty"`
	Inactive int `json:"inactive,omitempty"`
}

// Explainer is a backend that can report a Path. Any goroutine may call an Explainer's methods.
type Explainer interface {
	// Explain queries the kernel about a connection that the plan forwards. bound reports whether the connection's
	// socket is bound to an address.
	Explain(d plan.Decision, bound bool) (Path, error)
	// Summary returns lines of text about the connections that the backend has forwarded so far.
	Summary() []string
}

// Component describes a backend or a follower. Any of a Component's functions may be nil.
type Component struct {
	// If the Component is a backend, Name is one of the values of `proxy.backend` in the configuration.
	Name string
	// Doc is a backend's short description in the configuration reference.
	Doc string
	// A Component with a non-nil Resolve is an alias, and its other functions are nil. Resolve returns the Name of the
	// Component to use on this host. For example, the Component "iptables" resolves to the Component for the host's
	// iptables variant.
	Resolve func(ctx context.Context) (string, error)
	// Probe returns an error if the Component cannot run on this host. The error wraps ErrUnsupported if the host lacks
	// a kernel feature or a program. Probe changes nothing on the host.
	Probe func(ctx context.Context) error
	// Faults returns a fault for each missing host feature that restricts the Component. Faults changes nothing on the
	// host.
	Faults func(settings map[string]any, served []plan.Family) []fault.Fault
	// New returns a running Proxier and has no side effects on the host.
	New func(ctx context.Context, env Env) (Proxier, error)
	// Cleanup removes the state that any version of the Component left on the host, but not the state of other
	// Components. Cleanup does not need a running Proxier. If the Component left no state, Cleanup changes nothing (for
	// example, it loads no kernel module) and succeeds. An error that wraps ErrUnsupported means that Cleanup cannot
	// inspect this host, because a program or a privilege is missing. After the backend's first successful Apply, the
	// daemon runs Cleanup for Components that are not configured. A nil Cleanup means that the Component leaves nothing
	// behind.
	Cleanup func(ctx context.Context, env Env) error
	// Gaps returns the features of a ServicePort that the Component does not implement, or implements differently from
	// the plan. The result depends only on the ServicePort. A nil Gaps means that the Component has no gaps.
	Gaps func(svc *plan.ServicePort) []Gap
	// Settings lists the keys of the configuration section named after the Component.
	Settings []Setting
	// Traits holds facts about the Component that the daemon's packages need.
	Traits Traits
}

// Setting describes a configuration key.
type Setting struct {
	Name string
	Doc  string
	// Default is a string or a bool.
	Default any
	// Values lists the allowed values of a string setting. A setting with nil Values is a bool.
	Values []string
}

// Gap is a documented difference between a Component's behaviour and the plan.
type Gap struct {
	// Feature is the affected feature's usual name, such as "session affinity".
	Feature string
	// Reason is a sentence that states the actual behaviour and its cause.
	Reason string
}

// Traits describes a Component to the daemon's packages.
type Traits struct {
	// DropIn is the file name of the packaged systemd drop-in that the Component needs, or "" if it needs none.
	DropIn string
	// SharedTables lists the nftables tables that the Component shares with other programs. For the tables that belong
	// to Edgeway alone, see IsOwnTable.
	SharedTables []SharedTable
	// Cost is the memory that a backend needs to write all Services, including memory used by the kernel and by the
	// programs that the backend runs. Cost is zero for a backend that uses netlink.
	Cost Cost
	// CountsConnections reports whether the backend implements Counter.
	CountsConnections bool
	// NoFastPathReason is a sentence that explains why the backend's connections must not bypass the rules, or "" if
	// the connections may bypass them. A backend needs a NoFastPathReason if netfilter's connection tracking does not
	// translate the backend's connections.
	NoFastPathReason string
}

// Cost is the memory, in bytes, that a backend needs for each ServicePort, address and endpoint.
type Cost struct{ Port, Address, Endpoint int64 }

// Env holds the parameters for a Component's New and Cleanup functions.
type Env struct {
	Logger *slog.Logger
	// Families lists the address families that the kernel supports, IPv4 first.
	Families []plan.Family
	// MasqueradeBit is the index (0 to 31) of the mark bit that requests masquerading. OwnMark derives the mark of the
	// daemon's own connections from MasqueradeBit.
	MasqueradeBit int
	// Takeover reports whether another backend keeps forwarding connections until the first Apply has succeeded. Until
	// Apply has written a Service, Edgeway must not drop or reject connections to the Service, because the other
	// backend still forwards them.
	Takeover bool
	// The Component calls Drift, from any goroutine, if another program changed or removed the Component's state in the
	// kernel. The daemon then runs a full sync of the Component. Drift is never nil.
	Drift func(reason string)
	// A Maintainer calls Wake, from any goroutine, if work becomes due before the time that Due last returned. The
	// daemon then calls Due again. Wake is never nil.
	Wake func()
	// Settings maps the names in Component.Settings to their values. A missing setting has its default value.
	Settings map[string]any
	// During a long Apply, the Component calls Progress with the number of ServicePorts written so far and the total
	// number of ServicePorts. Progress is never nil.
	Progress func(done, total int)
	// CountConnections enables a Counter.
	CountConnections bool
	// Contain runs the Component's goroutines. After a panic, the next Apply is a full sync.
	Contain Contain
}

// Contain calls run, and calls it again after a panic. With a nil Contain, a panic ends the process.
type Contain func(part string, run func())

// Go runs a function in a goroutine that belongs to group. part names the function in logs.
func (c Contain) Go(group *sync.WaitGroup, part string, run func()) {
	group.Go(func() {
		if c == nil {
			run()
			return
		}
		c(part, run)
	})
}

// OwnMark returns the packet mark of the daemon's own connections to its API server. A backend never redirects, rejects
// or drops a packet that the host sends with this mark. The mark has only one bit set, two positions below the
// masquerade bit (modulo 32). A user who changes the masquerade bit because of a conflict with other software therefore
// changes both bits.
//
// With the default masquerade bit, 14, the mark is bit 12. Few programs use bit 12
// (https://github.com/fwmark/registry). The portmap CNI plugin and Podman use bit 13 for masquerading. Kubelets up to
// version 1.26 drop packets whose mark has bit 15 set. Tailscale uses bits 16 to 23, and Calico uses bits 16 to 31.
// Cilium reserves bits 0 to 12 and 16 to 31, but uses only bits 8 to 11 for the host's packets. Cilium uses bits 12 to
// 15 only for IPsec.
func OwnMark(masqueradeBit int) uint32 { return 1 << ((masqueradeBit + 30) % 32) }

// ErrUnsupported means that the host lacks a feature that the Component needs. An error that wraps ErrUnsupported names
// the feature.
var ErrUnsupported = errors.New("not supported on this host")

// ErrRefused means that the kernel rejected the content of a transaction and will reject the same content again. A
// transport failure, a timeout or a missing program is not an ErrRefused. After an ErrRefused, the caller finds the
// faulty ServicePort by bisection and leaves it out of the plan.
var ErrRefused = errors.New("refused by the kernel")

// Refusal wraps ErrRefused and the error that the kernel returned.
type Refusal struct {
	// Services lists the ServicePorts whose elements the kernel rejected.
	Services []*plan.ServicePort
	Err      error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns ErrRefused and the cause.
func (r *Refusal) Unwrap() []error { return []error{ErrRefused, r.Err} }
