package iptables

import (
	"reflect"

	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// Render gives the input of iptables-restore --noflush that leads from one plan to the next, for tests of the way from
// objects to rules. Prev nil: from tables without rules of ours. It is empty for a change that needs a full sync.
func Render(f plan.Family, env proxiers.Env, change proxiers.Change) []byte {
	if change.Prev == nil {
		_, in := initial(f, env, change.Next)
		(&fullSync{proxier: &proxier{env: env}, in: in}).hook(map[string]*found{xtables.NAT: {}, xtables.Filter: {}})
		return in.Bytes()
	}
	s, _ := initial(f, env, change.Prev)
	in := xtables.NewInput()
	if reflect.DeepEqual(s.renderer, rendererFor(f, change.Next.Node)) {
		s.partial(in, change)
	}
	return in.Bytes()
}

// initial gives the state that a full sync of p ends with, and its input but for the hooks.
func initial(f plan.Family, env proxiers.Env, p *plan.Plan) (*state, *xtables.Input) {
	s, in := newState(rendererFor(f, p.Node)), xtables.NewInput()
	for _, c := range constants(env.MasqueradeBit, true) {
		s.write(in, c)
	}
	for _, sp := range p.Services {
		s.replace(in, step{after: s.render(sp)})
	}
	s.finish(in, p)
	return s, in
}
