package firewall

import (
	"crypto/sha256"
	"slices"
)

// verdict is what a rule does with a packet that it matches.
type verdict uint8

const (
	goOn   verdict = iota // with the next rule
	accept                // ends the base chain: the next one goes on
	drop
	either // a program or a number decides
	jump
	jumpAway // never comes back ("goto")
	back
)

// rule is one of a chain.
type rule struct {
	conditions []condition
	do         verdict
	to         string // jump and jumpAway: the chain
	// text is the rule as iptables-save prints it. Of nftables the handle is known, by which nft gives the text.
	text   string
	handle uint64
}

// holds is as certain as the least certain condition.
func (r *rule) holds(p *packet) answer {
	least := yes
	for i := range r.conditions {
		if least = min(least, r.conditions[i].holds(p)); least == no {
			break
		}
	}
	return least
}

// chain is one of a table. A base chain has a hook.
type chain struct {
	table    *table
	name     string
	kind     string // "filter", "nat" or "route"
	hook     string
	priority int
	drops    bool // by policy
	rules    []rule
}

// table is one of nftables or of iptables.
type table struct {
	family string // "ip", "ip6" or "inet"
	name   string
	// program is iptables, ip6tables or one of their variants, whose table it is; empty: nft's.
	program string
	chains  map[string]*chain
	order   []*chain
	// marks says that a rule changes marks.
	marks bool
	// text is a sum of what it was read from.
	text [sha256.Size]byte
	// wrong says why the table could not be read.
	wrong error
}

func newTable(family, name string) *table {
	return &table{family: family, name: name, chains: map[string]*chain{}}
}

// meetsPackets says that the table has a base chain.
func (t *table) meetsPackets() bool {
	return slices.ContainsFunc(t.order, func(c *chain) bool { return c.hook != "" })
}

// chain gives the chain of the name, which is made if there is none.
func (t *table) chain(name string) *chain {
	c := t.chains[name]
	if c == nil {
		c = &chain{table: t, name: name}
		t.chains[name] = c
		t.order = append(t.order, c)
	}
	return c
}

// place is where a packet is dropped.
type place struct {
	base, chain *chain
	rule        *rule // nil: the base chain's policy
}

// fate is what can become of a packet in a chain.
type fate struct {
	accepted, falls bool // falls: off the chain's end
	dropped         bool
	at              place // the first where it can be dropped
}

// dropAt notes a drop. What is dropped for some clients alone is on purpose.
func (f *fate) dropAt(p place, a answer) {
	if !f.dropped && a != some {
		f.dropped, f.at = true, p
	}
}

const (
	// maxSteps bounds the rules that one look tries, and maxDepth is the kernel's (NFT_JUMP_STACK_SIZE).
	maxSteps = 5_000_000
	maxDepth = 16
)

// walker sends packets through base chains.
type walker struct {
	steps int
	// base and packet are those of the walk that goes on.
	base   *chain
	packet *packet
}

// tired says that not all was tried.
func (w *walker) tired() bool { return w.steps > maxSteps }

// pass says what can become of a packet in a base chain: whether it can be dropped, where, and whether it surely is.
func (w *walker) pass(base *chain, p *packet) (at place, dropped, surely bool) {
	w.base, w.packet = base, p
	f := w.walk(base, 0)
	if f.falls && base.drops {
		f.dropAt(place{base: base, chain: base}, yes)
	} else if f.falls {
		f.accepted = true
	}
	if w.tired() {
		return place{}, false, false
	}
	return f.at, f.dropped, f.dropped && !f.accepted
}

func (w *walker) walk(c *chain, depth int) (f fate) {
	for i := range c.rules {
		if w.steps++; w.tired() {
			break
		}
		r := &c.rules[i]
		if r.do == goOn {
			continue
		}
		if a := r.holds(w.packet); a != no && w.apply(&f, place{w.base, c, r}, a, depth) {
			return f
		}
	}
	f.falls = true
	return f
}

// apply adds what a rule that holds does to the fate, and says whether that surely is the end of the chain.
func (w *walker) apply(f *fate, here place, a answer, depth int) (ends bool) {
	switch r := here.rule; r.do {
	case accept:
		f.accepted = true
	case either:
		f.accepted = true
		f.dropAt(here, a)
	case drop:
		f.dropAt(here, a)
	case back:
		f.falls = true
	default:
		if next := here.chain.table.chains[r.to]; next != nil && depth < maxDepth {
			return w.follow(f, next, r.do, a, depth)
		}
		return false
	}
	return a == yes
}

// follow adds the fate in the chain that a rule leads to.
func (w *walker) follow(f *fate, next *chain, how verdict, a answer, depth int) (ends bool) {
	sub := w.walk(next, depth+1)
	f.accepted = f.accepted || sub.accepted
	if sub.dropped {
		f.dropAt(sub.at, a)
	}
	if how == jump {
		return a == yes && !sub.falls
	}
	f.falls = f.falls || sub.falls
	return a == yes
}
