package iptables

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables/watch"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

const (
	// maxWatchedLines is the maximum number of lines in a restore for which the iptables-nft watcher reads the kernel's
	// notifications (one for each line). For a larger restore, the watcher compares transaction counts instead.
	maxWatchedLines = 1000
	compareTimeout  = 2 * time.Minute // limits the time to compare the tables with the state that Edgeway wrote
)

type proxier struct {
	env         proxiers.Env
	families    []*family
	watcher     watch.Watcher
	watching    sync.WaitGroup
	dropInvalid bool // drop packets that connection tracking considers invalid
}

type family struct {
	*xtables.Tools
	state *state // the state that the last Apply wrote

	mu                        sync.Mutex
	kernel                    map[string]total // by table, or nil while unknown
	last                      map[string]int   // number of rules that the last sync wrote, by table
	failures, partialFailures uint64
}

func newProxier(ctx context.Context, v xtables.Variant, env proxiers.Env) (proxiers.Proxier, error) {
	p := &proxier{env: env}
	o := watch.Options{
		IsOwnChain: isOwnChain, IsBuiltin: builtin, Notify: env.Drift, Compare: p.compareTable, Entries: p.entries,
	}
	for _, f := range env.Families {
		t, err := xtables.Open(ctx, v, f)
		if err != nil {
			return nil, err
		}
		p.families = append(p.families, &family{Tools: t})
		for _, table := range tables() {
			o.Tables = append(o.Tables, watch.Table{Family: f, Name: table})
		}
	}
	var err error
	if p.watcher, err = watch.New(v, o); err != nil {
		return nil, fmt.Errorf("watch the rules: %w", err)
	}
	env.Contain.Go(&p.watching, "watch over rules", p.watcher.Run)
	return p, nil
}

func (p *proxier) Close() error {
	err := p.watcher.Close()
	p.watching.Wait()
	return err
}

func (p *proxier) Apply(ctx context.Context, change proxiers.Change) error {
	if change.Prev != nil && p.dropInvalid == !acceptsOutOfWindow() &&
		p.sameRules(change.Next.Node) && fitsOneRestore(change) {
		return p.applyPartial(ctx, change)
	}
	return p.applyFull(ctx, change.Next)
}

// fitsOneRestore reports whether one restore is enough for a change. For a larger change, Edgeway runs a full sync,
// which uses several restores.
func fitsOneRestore(change proxiers.Change) bool {
	endpoints := 0
	for _, sp := range slices.Concat(change.Removed, change.Changed) {
		endpoints += len(sp.Pools[plan.ClusterPool]) + len(sp.Pools[plan.LocalPool])
	}
	return endpoints <= chunkLines
}

// sameRules reports whether a change from the previous Node to n leaves the ServicePorts' rules unchanged.
func (p *proxier) sameRules(n *plan.Node) bool {
	return !slices.ContainsFunc(p.families, func(f *family) bool {
		return !reflect.DeepEqual(f.state.renderer, rendererFor(f.Family, n))
	})
}

func (p *proxier) applyPartial(ctx context.Context, change proxiers.Change) error {
	for _, f := range p.families {
		in := xtables.NewInput()
		f.state.writeDifference(in, change)
		f.update(func() { f.last = map[string]int{} })
		if in.Lines == 0 {
			continue
		}
		if err := p.commit(ctx, f, in, true); err != nil {
			f.update(func() { f.partialFailures++ })
			return fmt.Errorf("partial sync of %s: %w", f.Family, err)
		}
	}
	return nil
}

// commit runs a restore. settled reports whether all of the family's rules are in the kernel after the restore.
func (p *proxier) commit(ctx context.Context, f *family, in *xtables.Input, settled bool) error {
	return p.watcher.RunCommit(in.Tables(), in.Lines > maxWatchedLines, func() error {
		err := f.Restore(ctx, in.Bytes())
		f.update(func() {
			f.kernel = nil
			if err != nil {
				f.failures++
				return
			}
			for table, n := range in.Rules {
				f.last[table] += n
			}
			if settled {
				f.kernel = maps.Clone(f.state.totals)
			}
		})
		return err
	})
}

func (f *family) update(set func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	set()
}

// compareTable implements watch.Options.Compare.
func (p *proxier) compareTable(t watch.Table) (reason string) {
	f := p.family(t.Family)
	var want total
	f.update(func() { want = f.kernel[t.Name] })
	ctx, cancel := context.WithTimeout(context.Background(), compareTimeout)
	defer cancel()
	now, err := read(ctx, f.Tools, t.Name)
	if err != nil {
		return fmt.Sprintf("cannot read %s: %v", t, err)
	}
	for _, h := range hooks(p.env.MasqueradeBit) {
		for _, r := range h.Rules {
			if h.Table == t.Name && !slices.Contains(now.jumps[h.Name], r) {
				return fmt.Sprintf("a rule in chain %s of %s is missing", h.Name, t)
			}
		}
	}
	if got := (total{len(now.chains), now.rules}); got != want {
		return fmt.Sprintf("%s has %d Edgeway chains with %d rules instead of %d chains with %d rules",
			t, got.chains, got.rules, want.chains, want.rules)
	}
	return ""
}

// entries implements watch.Options.Entries.
func (p *proxier) entries(t watch.Table) (n int, settled bool) {
	f := p.family(t.Family)
	f.update(func() {
		var has total
		has, settled = f.kernel[t.Name]
		n = 2*has.chains + has.rules
	})
	return n, settled
}

func (p *proxier) family(name plan.Family) *family {
	return p.families[slices.IndexFunc(p.families, func(f *family) bool { return f.Family == name })]
}
