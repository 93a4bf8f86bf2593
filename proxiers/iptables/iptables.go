package iptables

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"sync"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
)

// bigChange is the number of lines above which the watcher does not read a notice for each.
const bigChange = 1000

// proxier is the running backend.
type proxier struct {
	logger        *slog.Logger
	progress      func(done, total int)
	variant       variant
	masqueradeBit int
	families      []*family
	watcher       watcher
	watching      sync.WaitGroup
	// looked says that the host was searched for rules of the other variant.
	looked bool

	// applied is what the kernel has; nil when that is unknown.
	applied *plan.Plan
	// invalid says whether packets that connection tracking finds invalid are dropped now.
	invalid bool
}

// family is one address family of the backend.
type family struct {
	tools *tools
	plan.Family
	// state is that of proxier.applied.
	state *state

	mu sync.Mutex
	// wrote is what the kernel has by now, by table; nil while that is unknown.
	wrote map[string]total
	// last are the numbers of rules that the last sync wrote.
	last                      map[string]int
	failures, partialFailures uint64
	// rejected is what chains that were written anew had counted.
	rejected map[plan.Protocol]uint64
}

func newProxier(_ context.Context, v variant, opts proxiers.Options) (proxiers.Proxier, error) {
	p := &proxier{logger: opts.Logger, progress: opts.Progress, variant: v, masqueradeBit: opts.MasqueradeBit}
	for _, f := range hostFamilies() {
		t, err := openTools(v, f)
		if err != nil {
			return nil, err
		}
		p.families = append(p.families, &family{tools: t, Family: f, rejected: map[plan.Protocol]uint64{}})
	}
	newWatcher := newEvents
	if v == legacy {
		newWatcher = newCanary
	}
	var err error
	p.watcher, err = newWatcher(watchOptions{families: hostFamilies(), notify: opts.Drift, intact: p.intact, entries: p.entries})
	if err != nil {
		return nil, fmt.Errorf("watch over the rules: %w", err)
	}
	p.watching.Go(p.watcher.run)
	return p, nil
}

// Close implements proxiers.Proxier.
func (p *proxier) Close() error {
	err := p.watcher.close()
	p.watching.Wait()
	return err
}

// Actual implements proxiers.Alias.
func (p *proxier) Actual() string { return p.variant.backend() }

// Apply implements proxiers.Applier.
func (p *proxier) Apply(ctx context.Context, change proxiers.Change) error {
	// The states are those of p.applied. change.Prev may be another pointer: the caller skips a plan that
	// differs in nothing.
	prev, next := p.applied, change.Next
	p.applied = nil
	apply := p.applyFull
	if change.Prev != nil && prev != nil && p.invalid == !liberal() && p.sameRules(next.Node) {
		apply = func(ctx context.Context, next *plan.Plan) error { return p.applyPartial(ctx, prev, next) }
	}
	if err := apply(ctx, next); err != nil {
		return err
	}
	p.applied = next
	return nil
}

// sameRules says that the node asks for no other rules of ServicePorts than before.
func (p *proxier) sameRules(n *plan.Node) bool {
	for _, f := range p.families {
		if f.state == nil || !f.state.equal(rendererFor(f.Family, n)) {
			return false
		}
	}
	return true
}

func (p *proxier) applyPartial(ctx context.Context, prev, next *plan.Plan) error {
	for _, f := range p.families {
		in := newInput()
		f.state.partial(in, prev, next)
		f.setLast(in.rules)
		if in.empty() {
			continue
		}
		if err := p.commit(ctx, f, in, true); err != nil {
			f.count(&f.partialFailures)
			return fmt.Errorf("partial sync of %s: %w", f.Family, err)
		}
	}
	return nil
}

// commit runs a restore. settled says that the kernel has the family's state afterwards.
func (p *proxier) commit(ctx context.Context, f *family, in *input, settled bool) error {
	return p.watcher.own(len(in.parts), in.size() > bigChange, func() error {
		err := f.tools.restore(ctx, in.bytes())
		f.mu.Lock()
		defer f.mu.Unlock()
		f.wrote = nil
		switch {
		case err != nil:
			f.failures++
		case settled:
			f.wrote = maps.Clone(f.state.totals)
		}
		return err
	})
}

func (f *family) count(n *uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	*n++
}

func (f *family) setLast(rules map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = rules
}

// interfaceName is what an interface, or a prefix of some, may be called in a rule.
var interfaceName = regexp.MustCompile(`^[A-Za-z0-9_.:@-]{1,15}\*?$`)

func checkInterfaces(n *plan.Node) error {
	for _, name := range n.PodInterfaces {
		if !interfaceName.MatchString(name) {
			return fmt.Errorf("pod interface %q: want at most 15 letters, digits or signs of _.:@-, and one * at the end", name)
		}
	}
	return nil
}
