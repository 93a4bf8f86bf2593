// Package firewall finds what other programs' rules do to connections of Services.
//
// In nftables a packet must be accepted by every base chain of its hook: that our table accepts a packet does not help
// it in another one. So each base chain of another table is asked by itself what becomes of packets of sample
// connections of the plan: from each sort of client by each sort of frontend to endpoints on each link, and the
// answers. Rules are evaluated, not run. What cannot be told (a set's contents, a match that is not known) is taken as
// possible: a packet is surely dropped, or may be, or is not.
//
// A rule that drops some clients, or what is beyond a rate, does so on purpose: it is no finding.
package firewall

import (
	"context"
	"fmt"
	"slices"
	"weak"

	"edgeway/daemon/text"
	"edgeway/proxiers/fault"
	"edgeway/proxiers/plan"
)

// Check is the name of the findings.
const Check = "firewall"

// Checker looks from time to time, never twice at once. Where nothing has changed it asks no more than whether that is
// so.
type Checker struct {
	reader reader
	// The last look: what was asked, and found.
	plan          weak.Pointer[plan.Plan]
	survey        survey
	tables        []*table
	masqueradeBit int
	found         []fault.Fault
}

// New makes one that looks at the network namespace of the calling thread.
func New() *Checker { return &Checker{reader: newReader()} }

// Question is what the rules are asked about.
type Question struct {
	Plan *plan.Plan
	Host Host
	// MasqueradeBit is that of the packet mark.
	MasqueradeBit int
}

// Look gives what drops connections of the plan's Services, or may do so.
func (c *Checker) Look(ctx context.Context, q Question) []fault.Fault {
	ctx, cancel := context.WithTimeout(ctx, timeBound)
	defer cancel()
	tables := c.reader.read(ctx)
	if !slices.ContainsFunc(tables, (*table).meetsPackets) {
		return ask(tables, nil, q.MasqueradeBit).findings()
	}
	if of := weak.Make(q.Plan); of != c.plan || !c.survey.holds(q.Host) {
		next := newSurvey(q.Plan, q.Host)
		if !slices.EqualFunc(next.ways, c.survey.ways, func(a, b *way) bool { return *a == *b }) {
			c.found = nil
		}
		c.plan, c.survey = of, next
	}
	if c.found == nil || !slices.Equal(tables, c.tables) || q.MasqueradeBit != c.masqueradeBit {
		j := ask(tables, c.survey.ways, q.MasqueradeBit)
		for _, h := range j.told() {
			h.at.describe(ctx)
		}
		c.tables, c.masqueradeBit, c.found = tables, q.MasqueradeBit, j.findings()
	}
	return c.found
}

// hit is a place that drops packets.
type hit struct {
	at     place
	surely bool
	// way is the first, and step where on it; others counts the others, up to the last.
	way, last *way
	step      step
	others    int
}

// weight orders hits: the heaviest is told. What drops connections that no client is known to make is no problem.
func (h *hit) weight() int {
	switch {
	case !h.surely:
		return 0
	case h.way.optional:
		return 1
	}
	return 2
}

// ask sends packets of all ways through all base chains.
func ask(tables []*table, ways []*way, masqueradeBit int) *judgement {
	j := &judgement{
		tables: tables, ways: ways, hits: map[place]*hit{},
		marks: marks{known: allBits, masquerade: uint64(1) << masqueradeBit},
	}
	if slices.ContainsFunc(tables, func(t *table) bool { return t.marks }) {
		j.marks.known = 0
	}
	for _, t := range tables {
		for _, c := range t.order {
			if c.hook != "" {
				j.chains++
				j.chain(c)
			}
		}
	}
	return j
}

// maxTold is how many places are told: each takes a run of nft, and a condition of the daemon.
const maxTold = 20

// told gives the heaviest hits, in the order in which packets meet them.
func (j *judgement) told() []*hit {
	slices.SortStableFunc(j.order, func(a, b *hit) int { return b.weight() - a.weight() })
	return j.order[:min(len(j.order), maxTold)]
}

// findings puts it into words.
func (j *judgement) findings() (out []fault.Fault) {
	for _, t := range j.tables {
		if t.wrong != nil {
			out = append(out, unread(t))
		}
	}
	for _, h := range j.told() {
		out = append(out, h.finding())
	}
	if more := len(j.order) - maxTold; more > 0 {
		out = append(out, fault.New(Check, fault.Warning, "nft list ruleset; iptables-save; ip6tables-save",
			"there are %d more places that drop connections of Services, or may: look again when these are mended", more))
	}
	if j.walker.tired() {
		out = append(out, fault.New(Check, fault.Warning, "nft list ruleset",
			"there are too many rules of other programs: after %d steps this check ends; look at the rest yourself", maxSteps))
	}
	if len(out) == 0 {
		out = append(out, fault.New(Check, fault.OK, "",
			"no rule of other programs drops connections of Services (%s, %s of connections)", text.Count(j.chains, "base chain"), text.Count(len(j.ways), "sort")))
	}
	return out
}

// unread is about a table that could not be read.
func unread(t *table) fault.Fault {
	which := fmt.Sprintf("the %s table %s", t.family, t.name)
	if t.name == "" {
		which = "a table of nftables"
	}
	return fault.New(Check, fault.Warning, t.list(), "whether %s drops connections of Services is not known: %v",
		which, t.wrong)
}

type judgement struct {
	tables []*table
	ways   []*way
	walker walker
	marks  marks
	chains int // base chains that were asked
	hits   map[place]*hit
	order  []*hit
}

// chain asks one base chain about all ways that pass its hook.
func (j *judgement) chain(c *chain) {
	for _, w := range j.ways {
		if c.table.family != "inet" && (c.table.family == "ip") != (w.family == plan.IPv4) {
			continue
		}
		for _, s := range w.steps() {
			if s.hook != c.hook || c.kind == "nat" && s.reply { // nat has only a connection's first packet
				continue
			}
			p := w.packet(s, c.priority, j.marks)
			at, dropped, surely := j.walker.pass(c, &p)
			if dropped {
				j.note(hit{at: at, surely: surely, way: w, step: s, last: w})
			}
		}
	}
}

// note counts each way once for a place: ways come one after the other.
func (j *judgement) note(h hit) {
	known := j.hits[h.at]
	if known == nil {
		j.hits[h.at] = &h
		j.order = append(j.order, &h)
		return
	}
	if known.last != h.last {
		known.others++
		known.last = h.last
	}
	if h.weight() > known.weight() {
		h.others = known.others
		*known = h
	}
}

// finding puts a hit into words.
func (h *hit) finding() fault.Fault {
	level, verb, what, more := fault.Problem, "drops", "connections", ""
	if h.weight() < 2 {
		level = fault.Warning
	}
	if !h.surely {
		verb = "may drop (what it asks for is not known here)"
	}
	if h.step.reply {
		what = "the answers to connections"
	}
	if h.others > 0 {
		more = ", and " + text.Count(h.others, "other sort")
	}
	return fault.New(Check, level, h.at.mend(h.way, h.step), "%s %s %s %s%s", h.at, verb, what, h.way, more)
}
