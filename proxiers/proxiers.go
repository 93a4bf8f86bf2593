// Package proxiers holds the contract between the daemon, which decides, and the packages below it, which
// apply the plan to the host: one backend that programs the kernel, and the followers that run after it.
//
// Backends and followers are both Components. A Component is a description; its New gives a running Proxier. Optional
// features of a Proxier are interfaces that it implements: a Tender has deferred work to do, and one that has
// metrics is a prometheus.Collector.
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

// Change is one step from the plan that was last applied to the next one. NewChange makes it.
type Change struct {
	// Prev nil: the host's state is unknown: read it back and make it right (a full sync).
	Prev, Next *plan.Plan
	// Changed are the ServicePorts of Next that are new or differ from Prev's, Removed those of Prev that Next
	// lacks, both in plan order. Of a full sync all are changed.
	Changed, Removed []*plan.ServicePort
}

// NewChange computes the difference of the plans. It costs 0.3 ms at 30,000 ServicePorts: the caller does it once
// for all Proxiers that need the same Change.
func NewChange(prev, next *plan.Plan) Change {
	changed, removed := plan.Diff(prev, next)
	return Change{Prev: prev, Next: next, Changed: changed, Removed: removed}
}

// Empty says that the plans do not differ, so that a partial Apply would do nothing.
func (c Change) Empty() bool {
	return c.Prev != nil && len(c.Changed)+len(c.Removed) == 0 && c.Prev.Node == c.Next.Node &&
		slices.EqualFunc(c.Prev.HealthChecks, c.Next.HealthChecks,
			func(a, b *plan.HealthCheck) bool { return a == b || *a == *b })
}

// Applier applies a plan to the host.
//
// Apply is idempotent, never runs concurrently with itself, and is bounded by its context. After an
// error the caller's next Change has a nil Prev. With Prev set, the cost depends on what changed, not on what
// exists. Prev is the plan of the last Apply that succeeded, or an equal one.
type Applier interface {
	Apply(ctx context.Context, change Change) error
}

// Proxier is a running backend or follower. Close releases what the process holds and leaves the
// kernel forwarding.
type Proxier interface {
	Applier
	Close() error
}

// Tender is a Proxier with deferred work: it deletes what has been idle for a while, or retries a port that was
// in use. Both methods are called on the goroutine of Apply, never concurrently with it.
type Tender interface {
	// Due is when Tend has something to do; zero: nothing is left.
	Due() time.Time
	// Tend does what is due. What it cannot do stays due, at a later time. Its error is logged; what Apply did stays
	// in force.
	Tend(ctx context.Context) error
}

// Reporter is a Proxier that reports what is wrong with it. Faults may be called from any goroutine.
type Reporter interface{ Faults() []fault.Fault }

// Offloading is what a Proxier tells of connections that it has taken off the way through the rules.
type Offloading struct {
	// Devices are those between which it does so, sorted.
	Devices []string `json:"devices,omitempty"`
	// Services are those ServicePorts that opted in, in plan order.
	Services []OffloadedService `json:"services,omitempty"`
}

// OffloadedService is a ServicePort with its connections that are off the rules now. Packets and Bytes are theirs since
// they began, and zero where the kernel does not count them.
type OffloadedService struct {
	Name    plan.ServicePortName `json:"name"`
	Family  plan.Family          `json:"family"`
	Flows   int                  `json:"connections"`
	Packets uint64               `json:"packets,omitempty"`
	Bytes   uint64               `json:"bytes,omitempty"`
}

// Offloader is a Proxier that takes connections off the way through the rules. If it cannot do that here, it reports a
// fault with the ID FastPathFault.
type Offloader interface {
	// Offloading asks the kernel, which walks over all connections that it tracks. It may be called from any goroutine.
	Offloading(ctx context.Context) (Offloading, error)
}

// IDs of faults that several packages know.
const (
	// FastPathFault says that no connection leaves the rules.
	FastPathFault = "fast-path"
	// PortFault says that a port is not served.
	PortFault = "ports"
)

// Unserved returns the fault of a port of the host that cannot be listened on. object is the Service, or the key of the
// configuration, that the port belongs to. Only connections of a ServicePort to the address of at are concerned.
func Unserved(severity fault.Severity, at netip.AddrPort, object string, err error) fault.Fault {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		err = errno // a net.OpError repeats the address
	}
	return fault.Fault{
		ID: PortFault, Severity: severity, Object: fault.Object{Name: object},
		Scope:   fault.Scope{ServicePort: object, To: netip.PrefixFrom(at.Addr(), at.Addr().BitLen())},
		Message: fmt.Sprintf("%s is not served: %v", at, err),
		Fix:     "ss -tlnp  # shows which program listens there: stop it, or change the port",
	}
}

// Path says how a connection reaches its endpoint, where the backend knows more about that than the plan.
type Path struct {
	// Shortcut names the shortcut that the connection takes, or says why it takes the rules. It is "" if the backend
	// has no shortcut.
	Shortcut string
	// Scheduler is the kernel's scheduler that chooses the endpoint, or "" if the rules do.
	Scheduler string
	// Server is the address of the scheduler's virtual server.
	Server netip.AddrPort
	// Endpoints are the scheduler's.
	Endpoints map[netip.AddrPort]Chosen
}

// Chosen counts the connections of an endpoint, as the scheduler does. Weight is the share of connections that the
// endpoint should get, compared with the other endpoints.
type Chosen struct {
	Weight   int `json:"weight,omitempty"`
	Active   int `json:"active,omitempty"`
	Inactive int `json:"inactive,omitempty"`
}

// Explainer is a backend that knows more about the path of a connection than the plan. Its methods may be called from
// any goroutine.
type Explainer interface {
	// Explain asks the kernel about a connection that the plan forwards. bound says that its socket has an address of
	// its own.
	Explain(d plan.Decision, bound bool) (Path, error)
	// Summary says how connections have been served so far, in lines for people. It may be empty.
	Summary() []string
}

// Component is a backend or a follower: how to check whether it can run here, to make it, and to remove
// what it left. All functions may be nil.
type Component struct {
	// Name of a backend is a value of `proxy.backend` in the configuration.
	Name string
	// Doc says in a few words how a backend uses the kernel, for the configuration's documentation.
	Doc string
	// Resolve gives the Name of the Component that this one is an alias of on this host, as of a program with two
	// implementations the one that the host uses. A Component with Resolve has no other function.
	Resolve func(ctx context.Context) (string, error)
	// Probe reports why the Component cannot run on this host, wrapping ErrUnsupported when a kernel
	// feature or a tool is missing. It changes nothing on the host.
	Probe func(ctx context.Context) error
	// Faults reports what this host lacks and the Component can do without, though less well, with these settings and
	// for Services of these families. It changes nothing on the host.
	Faults func(settings map[string]any, served []plan.Family) []fault.Fault
	// New has no side effect on the host.
	New func(ctx context.Context, env Env) (Proxier, error)
	// Cleanup removes everything that any version of the Component left on the host, and nothing of
	// another one. It needs no instance. If there is nothing to remove, it changes nothing (for example, it loads no
	// module) and succeeds. An error that wraps ErrUnsupported says that this cannot be determined on this host: the
	// tool or the privilege is missing. The daemon runs it for Components that are not configured, once the
	// backend serves. Nil: it leaves nothing.
	Cleanup func(ctx context.Context, env Env) error
	// Gaps gives what the Component leaves out of a ServicePort, or does differently. It looks only at the
	// ServicePort. Nil: it leaves out nothing.
	Gaps func(svc *plan.ServicePort) []Gap
	// Settings are the keys of a section of the configuration that has the Component's Name.
	Settings []Setting
	// Traits are what other parts of the daemon need to know about it.
	Traits Traits
}

// Setting is a key of the configuration.
type Setting struct {
	Name string
	// Doc says in plain text what it does.
	Doc string
	// Default is a string or a bool.
	Default any
	// Values are those that a string may have; nil: true and false of a bool.
	Values []string
}

// Gap is a declared difference from what the plan asks for.
type Gap struct {
	// Feature is the term of the field, such as "session affinity".
	Feature string
	// Reason is a sentence: what happens instead, and why.
	Reason string
}

// Traits are facts about a Component.
type Traits struct {
	// Devices are names of network devices that it makes. Their addresses are not the host's own.
	Devices []string
	// DropIn is the file among the package's examples that systemd's unit needs as a drop-in for it; empty: none.
	DropIn string
	// SharedTables lists the tables of other programs in which it has chains of its own. OwnTable knows those that are
	// its alone.
	SharedTables []SharedTable
	// Cost is the memory that Services take while the backend writes all of them, the programs that it runs and the
	// kernel included. It is zero for a backend that writes by netlink.
	Cost Cost
	// NoFastPath is a sentence that says why connections that a backend translates may not leave the way through the
	// rules; empty: they may. It is so where netfilter's connection tracking does not translate them.
	NoFastPath string
}

// Cost is the memory that the parts of a Service take, in bytes: a ServicePort, an address of a ServicePort, and an
// endpoint of a ServicePort.
type Cost struct{ Port, Address, Endpoint int64 }

// Env is what a Component is made with, and cleans up with.
type Env struct {
	Logger *slog.Logger
	// Families are those that the kernel supports, IPv4 first.
	Families []plan.Family
	// MasqueradeBit is the bit (0 to 31) of the packet mark that means "masquerade".
	// The mark of the daemon's own connections follows from it; see OwnMark.
	MasqueradeBit int
	// Takeover says that another backend serves until the first Apply has succeeded: while an Apply in several
	// steps runs, connections to what it has not written yet are left to that backend's rules, not dropped or rejected.
	Takeover bool
	// Drift is called, from any goroutine, when the Component sees that another program changed or
	// removed its state in the kernel. The caller answers with a full sync of it. Never nil.
	Drift func(reason string)
	// Wake is called, from any goroutine, by a Tender that has something to do earlier than its last Due said. The
	// caller asks again. Never nil.
	Wake func()
	// Settings are the values of Component.Settings by their names; one that is not there has its default.
	Settings map[string]any
	// Progress is called during a long Apply with the ServicePorts done so far and their total.
	// Never nil.
	Progress func(done, total int)
	// Contain runs the goroutines of the Component. After a panic the next Apply is a full one.
	Contain Contain
}

// Contain runs the work of a goroutine until it returns. After a panic it runs the work again. With a nil Contain a
// panic ends the process.
type Contain func(part string, run func())

// Go runs a part of a Proxier in a goroutine of the group.
func (c Contain) Go(group *sync.WaitGroup, part string, run func()) {
	group.Go(func() {
		if c == nil {
			run()
			return
		}
		c(part, run)
	})
}

// OwnMark gives the packet mark of the daemon's own connections, to its API server: whatever the plan asks for, a
// backend never redirects, rejects or drops a packet that the host sends with it. It is the bit two below that of the
// masquerade mark, or above it at the lower end, so that whoever moves the one for the sake of other software moves
// both.
//
// Bit 12 beside the usual bit 14 is one that almost nobody has (https://github.com/fwmark/registry): bit 13 is what
// the CNI plugin portmap and Podman masquerade by, bit 15 what older kubelets drop by, Tailscale has 16 to 23
// and Calico 16 to 31. Of 0 to 12 and 16 to 31, all of which are Cilium's, it uses 8 to 11 for packets of the host,
// and 12 to 15 only for IPsec.
func OwnMark(masqueradeBit int) uint32 { return 1 << ((masqueradeBit + 30) % 32) }

// ErrUnsupported says that the host lacks something that the Component needs. The wrapping error names it.
var ErrUnsupported = errors.New("not supported on this host")

// ErrRefused says that the kernel read the transaction and refused its content, as opposed to a
// failure of the transport, a time-out or a missing tool: the same bytes will be refused again. The
// caller then finds the ServicePort that is to blame by halves and leaves it out.
var ErrRefused = errors.New("refused by the kernel")

// Refusal is an ErrRefused of which the kernel tells what it is about.
type Refusal struct {
	// Services are the ServicePorts that have what is refused.
	Services []*plan.ServicePort
	Err      error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap gives both errors.
func (r *Refusal) Unwrap() []error { return []error{ErrRefused, r.Err} }
