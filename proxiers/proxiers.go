// Package proxiers holds the contract between the daemon, which makes the decisions, and the packages below it, which
// apply the plan to the host: one backend that programs the kernel, and the followers that run after the backend.
//
// Backends and followers are both Components. A Component is a description; its New function returns a running
// Proxier. A Proxier implements interfaces for its optional features: a Maintainer has deferred work, and a Proxier
// with metrics is a prometheus.Collector.
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

// Change is the difference between the plan that was last applied and the next plan, as computed by NewChange.
type Change struct {
	// A nil Prev means that the host's state is unknown: Apply must read the state back and correct it (a full sync).
	Prev, Next *plan.Plan
	// Changed lists the ServicePorts of Next that are new or differ from Prev. Removed lists the ServicePorts of Prev
	// that are not in Next. Changed and Removed are in plan order. In a full sync, Changed lists all ServicePorts.
	Changed, Removed []*plan.ServicePort
}

// NewChange computes the difference between two plans. NewChange takes 0.3 ms at 30,000 ServicePorts, so Proxiers
// that need the same Change share the result of one call.
func NewChange(prev, next *plan.Plan) Change {
	changed, removed := plan.Diff(prev, next)
	return Change{Prev: prev, Next: next, Changed: changed, Removed: removed}
}

// Empty reports whether the plans are equal, so that a partial Apply would do nothing.
func (c Change) Empty() bool {
	return c.Prev != nil && len(c.Changed)+len(c.Removed) == 0 && c.Prev.Node == c.Next.Node &&
		slices.EqualFunc(c.Prev.HealthChecks, c.Next.HealthChecks,
			func(a, b *plan.HealthCheck) bool { return a == b || *a == *b })
}

// Applier applies a plan to the host.
//
// Apply is idempotent, never runs concurrently with itself, and returns when its context is done. After an error the
// caller's next Change has a nil Prev. With a non-nil Prev, the cost of Apply depends on the number of changes, not
// on the size of the plan. Prev is the plan of the last successful Apply, or an equal plan.
type Applier interface {
	Apply(ctx context.Context, change Change) error
}

// Proxier is a running backend or follower. Close releases the resources of the process, and the kernel keeps
// forwarding.
type Proxier interface {
	Applier
	Close() error
}

// Maintainer is a Proxier with deferred work: for example, it deletes entries that have been idle for a while, or
// retries a port that was in use. Due and Maintain are called on the goroutine that calls Apply, never concurrently
// with Apply.
type Maintainer interface {
	// Due returns the time at which Maintain has work to do, or the zero time if no work is left.
	Due() time.Time
	// Maintain does the work that is due. Work that fails becomes due again later. The caller logs the error of
	// Maintain; the result of Apply stays in force.
	Maintain(ctx context.Context) error
}

// Reporter is a Proxier that reports its own faults. Faults may be called from any goroutine.
type Reporter interface{ Faults() []fault.Fault }

// Offloading describes the connections that a Proxier has offloaded from the nftables rules.
type Offloading struct {
	// Devices are the network devices between which the Proxier offloads connections, sorted.
	Devices []string `json:"devices,omitempty"`
	// Services are the ServicePorts that opted in, in plan order.
	Services []OffloadedService `json:"services,omitempty"`
}

// OffloadedService is a ServicePort with its currently offloaded connections. Packets and Bytes count the traffic of
// these connections since their start, and are zero if the kernel does not count.
type OffloadedService struct {
	Name    plan.ServicePortName `json:"name"`
	Family  plan.Family          `json:"family"`
	Flows   int                  `json:"connections"`
	Packets uint64               `json:"packets,omitempty"`
	Bytes   uint64               `json:"bytes,omitempty"`
}

// Offloader is a Proxier that offloads connections from the nftables rules. An Offloader that cannot offload on this
// host reports a fault with the ID FastPathFault.
type Offloader interface {
	// Offloading queries the kernel, which visits all connections. Offloading may be called from any goroutine.
	Offloading(ctx context.Context) (Offloading, error)
}

// IDs of faults that several packages use.
const (
	// FastPathFault means that no connection can bypass the rules.
	FastPathFault = "fast-path"
	// PortFault means that Edgeway does not serve a port.
	PortFault = "ports"
)

// Unserved returns the fault for a port of the host that Edgeway cannot listen on. object is the Service or
// configuration key that the port belongs to. The fault affects only connections to a ServicePort at the address of at.
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

// Path describes how a connection reaches its endpoint, with the details that only the backend can report.
type Path struct {
	// Shortcut names the shortcut that the connection takes, or explains why the connection traverses the rules.
	// Shortcut is "" if the backend has no shortcut.
	Shortcut string
	// Scheduler is the kernel scheduler that chooses the endpoint, or "" if the rules choose the endpoint.
	Scheduler string
	// Server is the address of the scheduler's virtual server.
	Server netip.AddrPort
	// Endpoints holds the endpoints from which the scheduler chooses.
	Endpoints map[netip.AddrPort]Chosen
}

// Chosen holds the scheduler's connection counts for an endpoint. Weight is the share of connections that the
// endpoint should get, relative to the other endpoints.
type Chosen struct {
	Weight   int `json:"weight,omitempty"`
	Active   int `json:"active,omitempty"`
	Inactive int `json:"inactive,omitempty"`
}

// Explainer is a backend that can add details to the plan's path of a connection. The methods of an Explainer may be
// called from any goroutine.
type Explainer interface {
	// Explain queries the kernel about a connection that the plan forwards. bound reports whether the connection's
	// socket is bound to an address.
	Explain(d plan.Decision, bound bool) (Path, error)
	// Summary returns lines of text that describe how the backend has served connections so far. Summary may return
	// no lines.
	Summary() []string
}

// Component is a backend or a follower: functions that check whether it can run on this host, create it, and remove
// its state from the host. Any function of a Component may be nil.
type Component struct {
	// Name is a value of `proxy.backend` in the configuration if the Component is a backend.
	Name string
	// Doc describes in a few words how a backend uses the kernel, for the configuration reference.
	Doc string
	// Resolve returns the Name of the Component that this alias stands for on this host: for example, if a program has
	// two implementations, the implementation that the host uses. A Component with Resolve has no other function.
	Resolve func(ctx context.Context) (string, error)
	// Probe reports why the Component cannot run on this host. The error wraps ErrUnsupported when a kernel feature or
	// a tool is missing. Probe changes nothing on the host.
	Probe func(ctx context.Context) error
	// Faults returns a fault for each feature that the host lacks and that limits the Component without preventing it
	// from running, given these settings and families. Faults changes nothing on the host.
	Faults func(settings map[string]any, served []plan.Family) []fault.Fault
	// New has no side effect on the host.
	New func(ctx context.Context, env Env) (Proxier, error)
	// Cleanup removes everything that any version of the Component left on the host, and nothing that belongs to
	// another Component. Cleanup needs no running Proxier. If there is nothing to remove, Cleanup changes nothing
	// (for example, it loads no module) and succeeds. An error that wraps ErrUnsupported means that Cleanup cannot
	// check this host, because a tool or a privilege is missing. Once the backend serves traffic, the daemon runs
	// Cleanup for Components that are not configured. A nil Cleanup means that the Component leaves nothing behind.
	Cleanup func(ctx context.Context, env Env) error
	// Gaps returns the features of a ServicePort that the Component omits or implements differently. The result
	// depends only on the ServicePort. A nil Gaps means that the Component omits nothing.
	Gaps func(svc *plan.ServicePort) []Gap
	// Settings are the keys of the configuration section named after the Component.
	Settings []Setting
	// Traits are the facts about the Component that other packages of the daemon need.
	Traits Traits
}

// Setting is a key of the configuration.
type Setting struct {
	Name string
	// Doc describes the setting in plain text.
	Doc string
	// Default is a string or a bool.
	Default any
	// Values are the allowed values of a string. A setting with nil Values is a bool.
	Values []string
}

// Gap is a declared difference from the plan.
type Gap struct {
	// Feature names the feature by its usual technical term, such as "session affinity".
	Feature string
	// Reason is a sentence that states what happens instead, and why.
	Reason string
}

// Traits are facts about a Component.
type Traits struct {
	// Devices names the network devices that the Component creates. The devices' addresses do not count as the host's.
	Devices []string
	// DropIn names the packaged example that the systemd unit needs as a drop-in for the Component, or is "" if none.
	DropIn string
	// SharedTables lists the tables of other programs in which the Component has chains. OwnTable covers the tables
	// that belong to Edgeway alone.
	SharedTables []SharedTable
	// Cost is the memory that Services use while the backend writes all of them, including the memory of the kernel
	// and of the programs that the backend runs. Cost is zero for a backend that writes by netlink.
	Cost Cost
	// NoFastPath is a sentence that explains why connections that a backend translates must not bypass the rules, or ""
	// if they may bypass the rules. Connections must not bypass the rules if netfilter's connection tracking does not
	// translate them.
	NoFastPath string
}

// Cost is the memory, in bytes, that each ServicePort uses, and that each address and endpoint of a ServicePort adds.
type Cost struct{ Port, Address, Endpoint int64 }

// Env holds the parameters of a Component's New and Cleanup.
type Env struct {
	Logger *slog.Logger
	// Families are the address families that the kernel supports, IPv4 first.
	Families []plan.Family
	// MasqueradeBit is the bit (0 to 31) of the packet mark that means "masquerade". OwnMark derives the mark of the
	// daemon's own connections from MasqueradeBit.
	MasqueradeBit int
	// Takeover reports whether another backend keeps serving until the first Apply has succeeded. During an Apply in
	// several steps, Services that are not written yet stay with the other backend, and their connections are not
	// dropped or rejected.
	Takeover bool
	// Drift is called, from any goroutine, when the Component detects that another program changed or removed the
	// Component's state in the kernel. The caller responds with a full sync of the Component. Drift is never nil.
	Drift func(reason string)
	// Wake is called, from any goroutine, by a Maintainer that has work to do before the time that Due last returned.
	// The caller then calls Due again. Wake is never nil.
	Wake func()
	// Settings are the values of Component.Settings by name. A missing setting has its default value.
	Settings map[string]any
	// Progress is called during a long Apply with the number of ServicePorts done so far and their total. Progress is
	// never nil.
	Progress func(done, total int)
	// Contain runs the goroutines of the Component. After a panic the next Apply is a full sync.
	Contain Contain
}

// Contain calls a goroutine's function, and calls the function again after a panic. With a nil Contain, a panic
// terminates the process.
type Contain func(part string, run func())

// Go runs a function of a Proxier in a goroutine of the group. part names the function in logs.
func (c Contain) Go(group *sync.WaitGroup, part string, run func()) {
	group.Go(func() {
		if c == nil {
			run()
			return
		}
		c(part, run)
	})
}

// OwnMark returns the packet mark of the daemon's own connections to its API server. Whatever the plan contains, a
// backend never redirects, rejects or drops a packet that the host sends with this mark. The mark is the bit two
// positions below the masquerade bit, wrapping around from bit 0 to bit 31. A user who moves the masquerade bit to
// avoid a conflict with other software thus moves both bits.
//
// Bit 12, the mark for the default masquerade bit 14, is almost unused (https://github.com/fwmark/registry). The CNI
// plugin portmap and Podman masquerade with bit 13, older kubelets drop with bit 15, Tailscale uses bits 16 to 23,
// and Calico uses bits 16 to 31. Cilium claims bits 0 to 12 and 16 to 31, but uses bits 8 to 11 for packets of the
// host, and bits 12 to 15 only for IPsec.
func OwnMark(masqueradeBit int) uint32 { return 1 << ((masqueradeBit + 30) % 32) }

// ErrUnsupported means that the host lacks a feature that the Component needs. The wrapping error names the feature.
var ErrUnsupported = errors.New("not supported on this host")

// ErrRefused means that the kernel read the transaction and rejected its content, so the kernel will reject the same
// bytes again. A transport failure, a timeout or a missing tool is not an ErrRefused. After an ErrRefused the caller
// searches for the faulty ServicePort by bisection and leaves it out.
var ErrRefused = errors.New("refused by the kernel")

// Refusal is an ErrRefused for which the kernel reports the cause.
type Refusal struct {
	// Services are the ServicePorts that contain the rejected element.
	Services []*plan.ServicePort
	Err      error
}

func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns ErrRefused and the cause.
func (r *Refusal) Unwrap() []error { return []error{ErrRefused, r.Err} }
