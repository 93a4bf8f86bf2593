package nftables

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfnetlink"
	"edgeway/proxiers/plan"
)

// Name is the backend's name in the configuration.
const Name = "nftables"

const (
	// chunkSize is the number of ServicePorts in one transaction of a first sync: enough that the
	// start of nft does not count, and small enough for the kernel's limits on a netlink message.
	chunkSize = 1000
	// bigTransaction is the number of operations above which the monitor leaves its group.
	bigTransaction = 1000
	// sweepAfter is how long an idle object is kept: a class that a Service leaves is often needed
	// again soon. See also the package comment.
	sweepAfter = time.Minute
)

// proxier is the running backend.
type proxier struct {
	logger   *slog.Logger
	progress func(done, total int)
	renderer *renderer
	monitor  *nfnetlink.Monitor
	watching sync.WaitGroup
	// takeover is that of proxiers.Options.
	takeover bool

	// applied and ledger are what the kernel has; nil when that is unknown.
	applied *plan.Plan
	ledger  *ledger
}

// New makes the backend. It opens a subscription to the kernel's notices and changes nothing.
func New(_ context.Context, opts proxiers.Options) (proxiers.Proxier, error) {
	nft, err := openNFT()
	if err != nil {
		return nil, err
	}
	p := &proxier{logger: opts.Logger, progress: opts.Progress, takeover: opts.Takeover, renderer: newRenderer(nft, tableName, opts.MasqueradeBit)}
	p.monitor, err = newMonitor(tableName, p.renderer.families, opts.Drift)
	if err != nil {
		return nil, fmt.Errorf("subscription to nftables notices: %w", err)
	}
	p.watching.Go(p.monitor.Run)
	return p, nil
}

func openNFT() (knftables.Interface, error) {
	nft, err := knftables.New("", "")
	switch {
	case err == nil:
		return nft, nil
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("%w: the nft program is missing: install the package nftables (1.0.1 or newer)", proxiers.ErrUnsupported)
	case strings.Contains(err.Error(), "nft version must be"):
		return nil, fmt.Errorf("%w: %w: upgrade the package nftables", proxiers.ErrUnsupported, err)
	case strings.Contains(err.Error(), "Operation not permitted"):
		return nil, fmt.Errorf("nft may not change rules (it needs CAP_NET_ADMIN): %w", short(err))
	}
	return nil, fmt.Errorf("%w: %w", proxiers.ErrUnsupported, short(err))
}

func newRenderer(nft knftables.Interface, table string, masqueradeBit int) *renderer {
	r := &renderer{nft: nft, table: table, families: []plan.Family{plan.IPv4}, masqueradeMark: 1 << masqueradeBit}
	// A kernel started with ipv6.disable=1 has no such file, and refuses rules of the family.
	if _, err := os.Stat("/proc/net/if_inet6"); err == nil {
		r.families = append(r.families, plan.IPv6)
	}
	return r
}

// Apply implements proxiers.Applier.
func (p *proxier) Apply(ctx context.Context, change proxiers.Change) error {
	// The ledger is that of p.applied. change.Prev may be another pointer: the caller skips a plan that
	// differs in nothing.
	prev, next := p.applied, change.Next
	known := change.Prev != nil && prev != nil && sameInterfaces(prev, next)
	p.applied = nil
	touched := next.Services
	var err error
	if known {
		touched, err = p.applyPartial(ctx, prev, next)
	} else {
		err = p.applyFull(ctx, next)
	}
	if err != nil {
		return err
	}
	if err := p.forgetClients(ctx, touched); err != nil {
		return err
	}
	p.applied, p.takeover = next, false
	return nil
}

// Close implements proxiers.Proxier.
func (p *proxier) Close() error {
	err := p.monitor.Close()
	p.watching.Wait()
	return err
}

func (p *proxier) applyPartial(ctx context.Context, prev, next *plan.Plan) (touched []*plan.ServicePort, err error) {
	now := time.Now()
	p.sweep(ctx, now.Add(-sweepAfter))
	tx, touched := p.renderer.partial(p.ledger, prev, next, now)
	if err := p.commit(ctx, tx); err != nil {
		return nil, fmt.Errorf("partial sync: %w", err)
	}
	return touched, nil
}

// sweep deletes what has been idle since before. What can not be deleted stays for the next time.
func (p *proxier) sweep(ctx context.Context, before time.Time) {
	var objects []objectID
	for id, idle := range p.ledger.idle {
		if idle.since.Before(before) {
			objects = append(objects, id)
		}
	}
	if len(objects) == 0 {
		return
	}
	tx := p.renderer.nft.NewTransaction()
	p.renderer.sweep(tx, objects)
	if err := p.commit(ctx, tx); err != nil {
		p.logger.Debug("unused chains stay until the next sync", "error", err)
		return
	}
	for _, id := range objects {
		p.ledger.forget(id)
	}
}

// commit runs a transaction, if it has anything to do.
func (p *proxier) commit(ctx context.Context, tx *knftables.Transaction) error {
	n := tx.NumOperations()
	if n == 0 {
		return nil
	}
	return p.monitor.Own(1, n > bigTransaction, func() error {
		err := p.renderer.nft.Run(ctx, tx)
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("nft: %w", ctx.Err())
		}
		return short(err)
	})
}

// sameInterfaces says that the rules of next are those of prev.
func sameInterfaces(prev, next *plan.Plan) bool {
	return prev.Node == next.Node || fmt.Sprint(prev.Node.PodInterfaces) == fmt.Sprint(next.Node.PodInterfaces)
}

func compareObjects(a, b objectID) int {
	return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name))
}
