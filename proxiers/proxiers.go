// Package proxiers holds the contracts between the daemon, which decides, and the packages below it,
// which make the host agree: one backend that programs the kernel, and its followers.
package proxiers

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"edgeway/proxiers/plan"
)

// Change is one step from the plan that was last applied to the next one.
type Change struct {
	// Prev nil: the host's state is unknown: read it back and make it right (a full sync).
	Prev, Next *plan.Plan
}

// Applier makes the host agree with a plan.
//
// Apply is idempotent, never runs concurrently with itself, and is bounded by its context. After an
// error the caller's next Change has a nil Prev. With Prev set it costs what changed, never what
// exists.
type Applier interface {
	Apply(ctx context.Context, change Change) error
}

// Proxier is a running backend or follower. Close releases what the process holds and leaves the
// kernel forwarding.
type Proxier interface {
	Applier
	Close() error
}

// LoopbackRejecter is a Proxier that rejects packets to UDP and SCTP NodePorts on loopback addresses,
// which proxiers/localnodeport does not relay (KEP-6032).
type LoopbackRejecter interface {
	// LoopbackRejected gives a count for each family that the backend serves and each of the protocols.
	// It may be called at any time, from any goroutine.
	LoopbackRejected() ([]Rejected, error)
}

// Rejected is the number of packets that were rejected since the backend's state was made.
type Rejected struct {
	Family   plan.Family
	Protocol plan.Protocol
	Packets  uint64
}

// Alias is a Proxier of a Backend that can be another Backend under a second name: "iptables" is
// iptables-nft or iptables-legacy, as the host uses it. The daemon asks, so that it does not clean up what
// is in force when it cleans up after all other Backends.
type Alias interface {
	// Actual is the Name of the Backend whose Cleanup removes what this Proxier writes: another one's, or
	// its own. It never changes.
	Actual() string
}

// RestoreReporter is a Proxier that works through iptables-restore (KEP-3453).
type RestoreReporter interface {
	// RestoreReports gives one for each family that the backend serves. It may be called at any time,
	// from any goroutine.
	RestoreReports() []RestoreReport
}

// RestoreReport is what a RestoreReporter did for one family since it was made.
type RestoreReport struct {
	Family plan.Family
	Tables []RestoredTable
	// Failures counts every restore that failed, PartialFailures those that were partial.
	Failures, PartialFailures uint64
	// Locks is how often the lock of the iptables programs was taken, LockWait how long that took in all.
	// Both are 0 for iptables-nft, which has no lock.
	Locks    uint64
	LockWait time.Duration
}

// RestoredTable counts rules of one table.
type RestoredTable struct {
	Name string
	// Total is the number of our rules in the kernel, Last those that the last sync wrote.
	Total, Last int
}

// Backend is a kernel implementation of Services.
type Backend struct {
	// Name is the value of `backend` in the configuration.
	Name string
	// Probe reports why the backend can not run on this host, wrapping ErrUnsupported when a kernel
	// feature or a tool is missing. It changes nothing on the host.
	Probe func(ctx context.Context) error
	// New has no side effect on the host.
	New func(ctx context.Context, opts Options) (Proxier, error)
	// Cleanup removes everything that any version of the backend left on the host, and nothing of
	// another Backend. It needs no instance, changes nothing when there is nothing (loads no module, for
	// one), and is not an error then. An error that wraps ErrUnsupported says that nobody can tell on this
	// host: the tool or the privilege is missing. The daemon runs it for all other backends once its own
	// serves. Nil: the backend is only a second name of others, see Alias; theirs do it.
	Cleanup func(ctx context.Context, opts Options) error
}

// Options are what every backend is made with.
type Options struct {
	Logger *slog.Logger
	// MasqueradeBit is the bit (0 to 31) of the packet mark that means "rewrite the source".
	MasqueradeBit int
	// Takeover says that another backend serves until the first Apply has succeeded: what an Apply in
	// several steps has not written yet is left to that one's rules, neither dropped nor rejected.
	Takeover bool
	// Drift is called, from any goroutine, when the backend sees that something else changed or
	// removed its state in the kernel. The caller answers with a full sync. Never nil.
	Drift func(reason string)
	// Progress is called during a long Apply with the ServicePorts done so far and their total.
	// Never nil.
	Progress func(done, total int)
}

// ErrUnsupported says that the host lacks something that the backend needs. The wrapping error names it.
var ErrUnsupported = errors.New("not supported on this host")

// ErrRefused says that the kernel read the transaction and refused its content, as opposed to a
// failure of the transport, a time-out or a missing tool: the same bytes will be refused again. The
// caller then finds the ServicePort that is to blame by halves and leaves it out.
var ErrRefused = errors.New("refused by the kernel")
