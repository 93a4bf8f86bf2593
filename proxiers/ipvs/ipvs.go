package ipvs

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/nftables"
	"edgeway/proxiers/plan"
)

// proxier is the running ipvs backend. The embedded Table implements proxiers.Maintainer.
type proxier struct {
	*nfttable.Table
	env      proxiers.Env
	settings settings
	kernel   *client
	routes   *routeManager
	watcher  *watcher
	// mu protects allocator, which a full sync replaces and Explain may read at any time. The table's schema uses the
	// same allocator.
	mu        sync.RWMutex
	allocator *allocator
	// inSync reports whether the kernel agrees with the last plan.
	inSync bool
}

func newProxier(env proxiers.Env) (*proxier, error) {
	p := &proxier{env: env, settings: settingsOf(env), allocator: &allocator{}}
	if err := p.open(); err != nil {
		p.release()
		return nil, err
	}
	return p, nil
}

func (p *proxier) open() (err error) {
	if p.kernel, err = openClient(); err != nil {
		return err
	}
	if p.routes, err = openRoutes(p.env.Families); err != nil {
		return err
	}
	if p.watcher, err = newWatcher(p.env); err != nil {
		return err
	}
	p.Table, err = nfttable.New(schema(p.allocator, p.env.CountConnections), p.env)
	return err
}

func (p *proxier) release() {
	if p.watcher != nil {
		p.watcher.close()
	}
	if p.kernel != nil {
		p.kernel.Close()
	}
	if p.routes != nil {
		p.routes.Close()
	}
}

func (p *proxier) Close() error {
	p.release()
	return p.Table.Close()
}

// Apply runs a full sync instead of a partial sync if the kernel is in an unexpected state.
func (p *proxier) Apply(ctx context.Context, change proxiers.Change) error {
	known := p.inSync
	p.inSync = false
	p.watcher.begin()
	defer func() { p.watcher.finish(p.inSync) }()
	if known && p.partly(change) {
		err := p.applyPartial(ctx, change)
		if err == nil {
			p.inSync = true
			return nil
		}
		if ctx.Err() != nil || errors.Is(err, proxiers.ErrRefused) {
			return err
		}
		p.env.Logger.Debug("partial sync failed, running a full sync", "error", err)
	}
	if change.Prev != nil {
		change = proxiers.NewChange(nil, change.Next)
	}
	if err := p.applyFull(ctx, change); err != nil {
		return err
	}
	p.inSync = true
	return nil
}

func (p *proxier) partly(change proxiers.Change) bool {
	return change.Prev != nil && slices.Equal(change.Prev.Node.HostAddrs, change.Next.Node.HostAddrs) &&
		p.allocator.updateBaseAddrs(change)
}

// applyTable writes the nftables table, and deletes the clients of removed endpoints from the table's client maps.
func (p *proxier) applyTable(ctx context.Context, change proxiers.Change) error {
	if err := p.Table.Apply(ctx, change); err != nil {
		return err
	}
	return p.Prune(ctx, nftables.StaleClientMaps(change, p.env.Families))
}

func (p *proxier) serves(f plan.Family) bool { return slices.Contains(p.env.Families, f) }

// Connections implements proxiers.Counter.
func (p *proxier) Connections(from *plan.Plan, add func(*plan.ServicePort, plan.FrontendKind, uint64)) error {
	return nftables.Connections(p.Table, from, add)
}

func (p *proxier) Describe(out chan<- *prometheus.Desc) {
	nftables.RejectCollector{Table: p.Table}.Describe(out)
}

func (p *proxier) Collect(out chan<- prometheus.Metric) {
	nftables.RejectCollector{Table: p.Table}.Collect(out)
}
