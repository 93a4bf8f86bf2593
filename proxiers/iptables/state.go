package iptables

import (
	"slices"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// state describes the chains and rules that Edgeway has written for one family.
type state struct {
	*renderer
	trees []*tree
	// sizes holds the number of rules in each chain, and totals holds the numbers of chains and rules in each table.
	sizes  map[xtables.ChainID]int
	totals map[string]total
}

type total struct{ chains, rules int }

func newState(r *renderer) *state {
	return &state{renderer: r, trees: newTrees(), sizes: map[xtables.ChainID]int{}, totals: map[string]total{}}
}

func (s *state) write(in *xtables.Input, c xtables.Chain) {
	in.Write(c)
	t := s.totals[c.Table]
	size, known := s.sizes[c.ChainID]
	if !known {
		t.chains++
	}
	t.rules += len(c.Rules) - size
	s.sizes[c.ChainID], s.totals[c.Table] = len(c.Rules), t
}

// remove removes a chain, and does nothing if Edgeway never wrote it.
func (s *state) remove(in *xtables.Input, id xtables.ChainID) {
	if _, known := s.sizes[id]; !known {
		return
	}
	in.Remove(id)
	t := s.totals[id.Table]
	s.totals[id.Table] = total{t.chains - 1, t.rules - s.sizes[id]}
	delete(s.sizes, id)
}

// serviceChange holds a ServicePort's old and new chains and entries. before is empty if the ServicePort is new, and
// after is empty if the next plan lacks the ServicePort.
type serviceChange struct{ before, after renderedService }

// replace writes the chains that differ between before and after, and adds the new entries to the trees. The finish
// method writes the trees later.
func (s *state) replace(in *xtables.Input, st serviceChange) {
	had := map[xtables.ChainID][]string{}
	for _, c := range st.before.chains {
		had[c.ChainID] = c.Rules
	}
	for _, c := range st.after.chains {
		if rules, ok := had[c.ChainID]; !ok || !slices.Equal(rules, c.Rules) {
			s.write(in, c)
		}
		delete(had, c.ChainID)
	}
	for _, c := range st.before.chains {
		if _, gone := had[c.ChainID]; gone {
			s.remove(in, c.ChainID)
		}
	}
	for _, e := range without(st.after.entries, st.before.entries) {
		s.trees[e.tree].add(e.dest, e.rules)
	}
}

func without(a, b []entry) (out []entry) {
	for _, e := range a {
		same := func(o entry) bool { return o.tree == e.tree && o.dest == e.dest && slices.Equal(o.rules, e.rules) }
		if !slices.ContainsFunc(b, same) {
			out = append(out, e)
		}
	}
	return out
}

// finish adds the node's rules to the trees, and writes the trees' changed chains.
func (s *state) finish(in *xtables.Input, p *plan.Plan) {
	addNodeRules(s.trees, s.family, p)
	for _, t := range s.trees {
		write, gone := t.flush()
		for _, c := range write {
			s.write(in, c)
		}
		for _, id := range gone {
			s.remove(in, id)
		}
	}
}

// writeDifference writes the difference between two plans. The properties in s.renderer must be the same for both
// plans.
func (s *state) writeDifference(in *xtables.Input, change proxiers.Change) {
	var steps []serviceChange
	for _, sp := range change.Removed {
		steps = append(steps, serviceChange{before: s.render(sp)})
	}
	for _, sp := range change.Changed {
		steps = append(steps, serviceChange{s.render(change.Prev.Find(sp.Name, sp.Family)), s.render(sp)})
	}
	for _, st := range steps {
		for _, e := range without(st.before.entries, st.after.entries) {
			s.trees[e.tree].remove(e.dest)
		}
	}
	for _, st := range steps {
		s.replace(in, st)
	}
	s.finish(in, change.Next)
}
