package iptables

import (
	"context"
	"fmt"
	"slices"

	"edgeway/proxiers/plan"
)

// chunkSize is the number of ServicePorts in one restore of a full sync. Each is whole in itself: what
// leads to its chains comes last. A bound keeps the tools' time and memory in bounds, and shows progress.
const chunkSize = 2000

// applyFull makes tables of unknown content agree with the plan. What is served stays served.
func (p *proxier) applyFull(ctx context.Context, next *plan.Plan) error {
	if err := checkInterfaces(next.Node); err != nil {
		return err
	}
	p.watcher.forget()
	p.invalid = !liberal()
	done := 0
	for _, f := range p.families {
		full := &fullSync{proxier: p, family: f, in: newInput(), written: map[string]int{}}
		if err := full.run(ctx, next, &done); err != nil {
			return fmt.Errorf("full sync of %s: %w", f.Family, err)
		}
		f.setLast(full.written)
	}
	p.warnOfMixture(ctx)
	return nil
}

// warnOfMixture looks once, after the first sync: our own rules count too.
func (p *proxier) warnOfMixture(ctx context.Context) {
	if p.looked {
		return
	}
	p.looked = true
	if text, mixed := mixedHost(ctx, p.variant); mixed {
		p.logger.Warn("host has rules of iptables-nft and of iptables-legacy, which do not see each other", "found", text)
	}
}

// fullSync is that of one family.
type fullSync struct {
	*proxier
	*family
	in      *input
	written map[string]int
	// kept is what the chains on loopback have counted; it is lost when they are written anew.
	kept map[plan.Protocol]uint64
}

func (s *fullSync) run(ctx context.Context, next *plan.Plan, done *int) error {
	s.state = newState(rendererFor(s.Family, next.Node))
	found := map[string]*saved{}
	var err error
	for _, table := range tables {
		if found[table], err = s.tools.save(ctx, table); err != nil {
			return err
		}
	}
	if s.kept, err = s.loopbackCounts(ctx, found[tableFilter]); err != nil {
		return err
	}
	for _, c := range constants(s.masqueradeBit, s.invalid) {
		s.state.write(s.in, c)
	}
	pending := 0
	for _, sp := range next.Services {
		if sp.Family != s.Family {
			continue
		}
		if pending == chunkSize {
			if err := s.commit(ctx, false); err != nil {
				return err
			}
			*done += pending
			s.progress(*done, len(next.Services))
			pending = 0
		}
		s.state.build(s.in, sp)
		pending++
	}
	frame(s.state.trees, s.Family, next)
	s.state.flush(s.in)
	s.hook(found)
	s.removeStale(found)
	if err := s.commit(ctx, true); err != nil {
		return err
	}
	*done += pending
	s.progress(*done, len(next.Services))
	return nil
}

func (s *fullSync) commit(ctx context.Context, settled bool) error {
	for table, n := range s.in.rules {
		s.written[table] += n
	}
	in := s.in
	s.in = newInput()
	if err := s.proxier.commit(ctx, s.family, in, settled); err != nil {
		return err
	}
	s.keep(s.kept)
	s.kept = nil
	return nil
}

// hook leads packets to our chains. Rules of somebody else that do so too, a kube-proxy's, go.
func (s *fullSync) hook(found map[string]*saved) {
	for _, h := range hooks() {
		var present []string
		for _, r := range found[h.table].builtin[h.chain] {
			if ours(target(r)) {
				present = append(present, r)
			}
		}
		if slices.Equal(present, h.rules) {
			continue
		}
		for _, r := range present {
			s.in.hook(h.table, "-D", h.chain, r)
		}
		for i, r := range h.rules {
			s.in.hook(h.table, "-I", h.chain, fmt.Sprintf("%d %s", i+1, r))
		}
	}
}

// removeStale deletes what is ours by name and not by content.
func (s *fullSync) removeStale(found map[string]*saved) {
	for _, table := range tables {
		for _, name := range found[table].chains {
			id := chainID{table, name}
			if _, wanted := s.state.sizes[id]; !wanted && ours(name) {
				s.in.remove(id)
			}
		}
	}
}

// intact implements watchOptions.intact.
func (p *proxier) intact(name plan.Family, table string) (reason string, settled bool) {
	f := p.family(name)
	want, settled := f.written(table)
	if !settled {
		return "", false
	}
	ctx, cancel := context.WithTimeout(context.Background(), intactTimeout)
	defer cancel()
	found, err := f.tools.save(ctx, table)
	if err != nil {
		return fmt.Sprintf("rules of %s can not be read: %v", f.Family, err), true
	}
	for _, h := range hooks() {
		if h.table != table {
			continue
		}
		for _, r := range h.rules {
			if !slices.Contains(found.builtin[h.chain], r) {
				return fmt.Sprintf("a rule of %s %s %s is gone", f.Family, table, h.chain), true
			}
		}
	}
	chains := 0
	for _, c := range found.chains {
		if ours(c) {
			chains++
		}
	}
	if got := (total{chains, found.rules}); got != want {
		return fmt.Sprintf("%s %s has %d chains with %d rules of ours instead of %d with %d", f.Family, table, got.chains, got.rules, want.chains, want.rules), true
	}
	return "", true
}

// entries implements watchOptions.entries.
func (p *proxier) entries(name plan.Family, table string) (n int, settled bool) {
	t, settled := p.family(name).written(table)
	return 2*t.chains + t.rules, settled
}

func (p *proxier) family(name plan.Family) *family {
	return p.families[slices.IndexFunc(p.families, func(f *family) bool { return f.Family == name })]
}

// written is what the kernel has of ours in a table; settled false says that it is unknown.
func (f *family) written(table string) (t total, settled bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, settled = f.wrote[table]
	return t, settled
}
