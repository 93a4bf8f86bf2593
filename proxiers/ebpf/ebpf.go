package ebpf

import (
	"context"
	"sync"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfttable"
	"edgeway/proxiers/nftables"
)

// inspectionInterval is the time between two inspections of the programs and maps. The kernel sends no event when
// another program removes a BPF program or map. An inspection takes about a dozen system calls.
const inspectionInterval = time.Second

type proxier struct {
	*nfttable.Table
	env       proxiers.Env
	shortcuts *shortcuts
	done      chan struct{}
	// deviceEvents receives a value when a network device appears or changes.
	deviceEvents chan struct{}
	wait         sync.WaitGroup
}

func newProxier(dir string, env proxiers.Env) (*proxier, error) {
	p := &proxier{env: env, done: make(chan struct{}), deviceEvents: make(chan struct{}, 1)}
	var err error
	if p.shortcuts, err = newShortcuts(dir, env, p.devicesChanged); err != nil {
		return nil, err
	}
	if p.Table, err = nfttable.New(schema(env.CountConnections), env); err != nil {
		p.shortcuts.close()
		return nil, err
	}
	env.Contain.Go(&p.wait, "watch over programs", p.watch)
	return p, nil
}

func (p *proxier) devicesChanged() {
	select {
	case p.deviceEvents <- struct{}{}:
	default: // a signal is already pending
	}
}

// watch reports damage to the programs and maps, and attaches the tc program to new network devices.
func (p *proxier) watch() {
	tick := time.NewTicker(inspectionInterval)
	defer tick.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-p.deviceEvents:
			p.shortcuts.attachToNewDevices()
			continue
		case <-tick.C:
		}
		if what := p.shortcuts.damage(); what != "" {
			p.env.Drift(what)
		}
	}
}

func (p *proxier) Apply(ctx context.Context, change proxiers.Change) error {
	st := p.shortcuts.begin(change)
	if err := p.table(ctx, change); err != nil {
		p.shortcuts.markUnknown()
		return err
	}
	p.shortcuts.finish(st, change.Next)
	return nil
}

func (p *proxier) table(ctx context.Context, change proxiers.Change) error {
	if err := p.Table.Apply(ctx, change); err != nil {
		return err
	}
	return p.Prune(ctx, nftables.StaleClientMaps(change, p.env.Families))
}

func (p *proxier) Due() time.Time {
	table, maps := p.Table.Due(), p.shortcuts.dueTime()
	if maps.IsZero() || !table.IsZero() && table.Before(maps) {
		return table
	}
	return maps
}

func (p *proxier) Maintain(ctx context.Context) error {
	if err := p.shortcuts.maintain(ctx); err != nil {
		return err
	}
	return p.Table.Maintain(ctx)
}

func (p *proxier) Close() error {
	close(p.done)
	p.wait.Wait()
	p.shortcuts.close()
	return p.Table.Close()
}
