package iptables

import (
	"slices"

	"edgeway/proxiers/plan"
)

// state is what the kernel has of one family, as far as it is ours.
type state struct {
	*renderer
	trees []*tree
	// sizes are the numbers of rules of our chains, totals their sums by table.
	sizes  map[chainID]int
	totals map[string]total
}

// total counts what is ours in a table.
type total struct{ chains, rules int }

func newState(r *renderer) *state {
	return &state{renderer: r, trees: newTrees(), sizes: map[chainID]int{}, totals: map[string]total{}}
}

func (s *state) write(in *input, c chain) {
	in.write(c)
	t := s.totals[c.table]
	size, known := s.sizes[c.id()]
	if !known {
		t.chains++
	}
	t.rules += len(c.rules) - size
	s.sizes[c.id()], s.totals[c.table] = len(c.rules), t
}

func (s *state) remove(in *input, id chainID) {
	in.remove(id)
	t := s.totals[id.table]
	t.chains--
	t.rules -= s.sizes[id]
	s.totals[id.table] = t
	delete(s.sizes, id)
}

// build writes a ServicePort that the kernel does not know, or may know in another form. Its places in
// the trees are written by flush.
func (s *state) build(in *input, sp *plan.ServicePort) {
	r := s.render(sp)
	for _, c := range r.chains {
		s.write(in, c)
	}
	for _, e := range r.entries {
		s.trees[e.tree].add(e.place, e.rules)
	}
}

// replace writes what differs between two forms of a ServicePort, of which either may be nil. All that
// goes is taken back before anything comes (see partial): another ServicePort may get its place.
func (s *state) replace(in *input, before, after rendered) {
	had := map[chainID][]string{}
	for _, c := range before.chains {
		had[c.id()] = c.rules
	}
	for _, c := range after.chains {
		rules, ok := had[c.id()]
		if !ok || !slices.Equal(rules, c.rules) {
			s.write(in, c)
		}
		delete(had, c.id())
	}
	for _, c := range before.chains {
		if _, gone := had[c.id()]; gone {
			s.remove(in, c.id())
		}
	}
}

// without gives the entries of a that are not in b.
func without(a, b []entry) []entry {
	var out []entry
	for _, e := range a {
		same := func(o entry) bool { return o.tree == e.tree && o.place == e.place && slices.Equal(o.rules, e.rules) }
		if !slices.ContainsFunc(b, same) {
			out = append(out, e)
		}
	}
	return out
}

// flush writes the chains of the trees that changed.
func (s *state) flush(in *input) {
	for _, t := range s.trees {
		write, remove := t.flush()
		for _, c := range write {
			s.write(in, c)
		}
		for _, id := range remove {
			s.remove(in, id)
		}
	}
}

// partial writes the step from prev to next. The family's pods and loopback are the same in both.
func (s *state) partial(in *input, prev, next *plan.Plan) {
	changed, removed := plan.Diff(prev, next)
	type step struct{ before, after rendered }
	var steps []step
	for _, sp := range removed {
		if sp.Family == s.family {
			steps = append(steps, step{before: s.render(sp)})
		}
	}
	for _, sp := range changed {
		if sp.Family != s.family {
			continue
		}
		st := step{after: s.render(sp)}
		if old := prev.Find(sp.Name, sp.Family); old != nil {
			st.before = s.render(old)
		}
		steps = append(steps, st)
	}
	for _, st := range steps {
		for _, e := range without(st.before.entries, st.after.entries) {
			s.trees[e.tree].remove(e.place)
		}
	}
	for _, st := range steps {
		s.replace(in, st.before, st.after)
		for _, e := range without(st.after.entries, st.before.entries) {
			s.trees[e.tree].add(e.place, e.rules)
		}
	}
	frame(s.trees, s.family, next)
	s.flush(in)
}
