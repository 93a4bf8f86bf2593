package iptables

import (
	"context"
	"fmt"
	"slices"

	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// chunkLines is the number of lines (about 2,000 ServicePorts) after which a full sync runs iptables-restore. The last
// restore adds the rules that jump from built-in chains to Edgeway's chains. Chunks limit the time and memory that the
// iptables programs need, and allow Edgeway to report progress.
const chunkLines = 50_000

// applyFull brings tables with unknown contents into agreement with the plan, without interrupting Services.
func (p *proxier) applyFull(ctx context.Context, next *plan.Plan) error {
	p.watcher.Forget()
	p.dropInvalid = !acceptsOutOfWindow()
	done := 0
	for _, f := range p.families {
		full := &fullSync{proxier: p, family: f, in: xtables.NewInput(), next: next, done: done}
		if err := full.run(ctx); err != nil {
			return fmt.Errorf("full sync of %s: %w", f.Family, err)
		}
		done = full.done
	}
	return nil
}

type fullSync struct {
	*proxier
	*family
	next *plan.Plan
	in   *xtables.Input
	done int // number of ServicePorts written, in all families
}

func (s *fullSync) run(ctx context.Context) error {
	s.state = newState(rendererFor(s.Family, s.next.Node))
	s.update(func() { s.last = map[string]int{} })
	before := map[string]*tableContents{}
	for _, table := range tables() {
		var err error
		if before[table], err = read(ctx, s.Tools, table); err != nil {
			return err
		}
	}
	for _, c := range constants(s.env.MasqueradeBit, s.dropInvalid) {
		s.state.write(s.in, c)
	}
	for _, sp := range s.next.Services {
		if sp.Family != s.Family {
			continue
		}
		if s.in.Lines >= chunkLines {
			if err := s.commit(ctx, false); err != nil {
				return err
			}
		}
		s.state.replace(s.in, serviceChange{after: s.state.render(sp)})
		s.done++
	}
	s.state.finish(s.in, s.next)
	s.hook(before)
	for _, table := range before {
		for _, id := range table.chains {
			if _, wanted := s.state.sizes[id]; !wanted {
				s.in.Remove(id)
			}
		}
	}
	return s.commit(ctx, true)
}

func (s *fullSync) commit(ctx context.Context, settled bool) error {
	if err := s.proxier.commit(ctx, s.family, s.in, settled); err != nil {
		return err
	}
	s.in = xtables.NewInput()
	s.env.Progress(s.done, len(s.next.Services))
	return nil
}

// hook adds the rules that jump from built-in chains to Edgeway's chains, and removes kube-proxy's rules that jump to
// the same chains.
func (s *fullSync) hook(before map[string]*tableContents) {
	for _, h := range hooks(s.env.MasqueradeBit) {
		present := before[h.Table].jumps[h.Name]
		if slices.Equal(present, h.Rules) {
			continue
		}
		for _, r := range present {
			s.in.AddBuiltinCommand(h.ChainID, "-D", r)
		}
		for i, r := range h.Rules {
			s.in.AddBuiltinCommand(h.ChainID, "-I", fmt.Sprintf("%d %s", i+1, r))
		}
	}
}
