package firewall

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"edgeway/daemon/doctor/nft"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

const (
	// maxList bounds the list of all chains, and maxTable the text of one table: some 5,000 rules of nft's, 20,000 of
	// iptables'.
	maxList  = 8 << 20
	maxTable = 2 << 20
	// again is when a table that was too big is read again: to find out costs as much as a table that is not.
	again = 10 * time.Minute
)

// ownTables are those of this program. The tables of iptables are shared.
var ownTables = []string{"edgeway", "edgeway-trace"}

// hooks are those that packets of Services pass.
var hooks = []string{"prerouting", "input", "forward", "output", "postrouting"}

// reader reads tables of other programs.
type reader struct {
	// tools are the programs of iptables that were found.
	tools map[toolsKey]*xtables.Tools
	// tooBig says until when a table is left alone, by family, program and name.
	tooBig map[[3]string]time.Time
}

type toolsKey struct {
	variant xtables.Variant
	family  plan.Family
}

func newReader() reader {
	return reader{tools: map[toolsKey]*xtables.Tools{}, tooBig: map[[3]string]time.Time{}}
}

// read gives all tables that have a base chain at a hook.
func (r *reader) read(ctx context.Context) (out []*table) {
	text, err := nft.Run(ctx, maxList, "", "-j", "list", "chains")
	var listed []*table
	if err == nil {
		listed, err = parseNFT(text)
	}
	if err != nil {
		out = append(out, &table{family: "any", name: "of nftables", wrong: err})
	}
	for _, t := range listed {
		if r.concerns(t) {
			out = append(out, r.table(ctx, t))
		}
	}
	for _, f := range xtables.HostFamilies() {
		out = append(out, r.legacy(ctx, f)...)
	}
	return out
}

// familyOf is of tables that have one.
var familyOf = map[string]plan.Family{"ip": plan.IPv4, "ip6": plan.IPv6}

// concerns says that packets of Services pass the table, and that it is not ours.
func (r *reader) concerns(t *table) bool {
	if !slices.Contains([]string{"ip", "ip6", "inet"}, t.family) || slices.Contains(ownTables, t.name) {
		return false
	}
	return slices.ContainsFunc(t.order, func(c *chain) bool {
		return slices.Contains(hooks, c.hook) && (c.kind != "nat" || !ofIPTables(t))
	})
}

// ofIPTables says that the table has a name of iptables', whose nat table drops nothing.
func ofIPTables(t *table) bool {
	_, known := priorities[t.name]
	return t.family != "inet" && (known || t.name == xtables.NAT)
}

// table reads one of nftables: by the program of iptables if it is its, as nft does not tell what iptables' own matches
// are.
func (r *reader) table(ctx context.Context, t *table) *table {
	if ofIPTables(t) {
		if read := r.save(ctx, toolsKey{xtables.NFT, familyOf[t.family]}, t.name); read != nil && read.wrong == nil {
			return read
		}
	}
	return r.bounded(t.family, "", t.name, func() (*table, error) {
		text, err := nft.Run(ctx, maxTable, "", "-j", "list", "table", t.family, t.name)
		if err != nil {
			return nil, err
		}
		tables, err := parseNFT(text)
		if err == nil && len(tables) == 0 {
			err = errors.New("it is gone")
		}
		if err != nil {
			return nil, err
		}
		return tables[0], nil
	})
}

// bounded reads a table unless it has been found to be too big a short while ago.
func (r *reader) bounded(family, program, name string, read func() (*table, error)) *table {
	failed := &table{family: family, name: name, program: program}
	key := [3]string{family, program, name}
	if until, ok := r.tooBig[key]; ok && time.Now().Before(until) {
		failed.wrong = errTooBig
		return failed
	}
	t, err := read()
	switch {
	case err == nil:
		return t
	case errors.Is(err, nft.ErrTooMuch), errors.Is(err, context.DeadlineExceeded):
		err = errTooBig
		r.tooBig[key] = time.Now().Add(again)
	}
	failed.wrong = err
	return failed
}

var errTooBig = fmt.Errorf("it has too many rules to read them again and again (more than %d MiB of text, or more than %s)", maxTable>>20, timeBound)

// priorities are those of iptables' tables.
var priorities = map[string]int{"raw": -300, "mangle": -150, "filter": 0, "security": 50}

// builtin gives the hook of a chain that tables of iptables have by themselves.
var builtin = map[string]string{
	"PREROUTING": "prerouting", "INPUT": "input", "FORWARD": "forward", "OUTPUT": "output", "POSTROUTING": "postrouting",
}

// legacy reads the tables that iptables-legacy has in the kernel beside nftables.
func (r *reader) legacy(ctx context.Context, f plan.Family) (out []*table) {
	names, err := xtables.Tables(xtables.Legacy, f)
	if err != nil {
		return nil // a daemon without privileges cannot know; "edgeway doctor" of root can
	}
	for _, name := range names {
		if _, known := priorities[name]; known {
			if t := r.save(ctx, toolsKey{xtables.Legacy, f}, name); t != nil {
				out = append(out, t)
			}
		}
	}
	return out
}

// save reads a table by iptables-save; nil: there is no such program.
func (r *reader) save(ctx context.Context, key toolsKey, name string) *table {
	tools := r.tools[key]
	if tools == nil {
		var err error
		if tools, err = xtables.Open(ctx, key.variant, key.family); err != nil {
			return nil
		}
		r.tools[key] = tools
	}
	family := map[plan.Family]string{plan.IPv4: "ip", plan.IPv6: "ip6"}[key.family]
	return r.bounded(family, tools.Command(), name, func() (*table, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s := saved{table: &table{family: family, name: name, program: tools.Command(), chains: map[string]*chain{}}, family: key.family}
		err := tools.Save(ctx, name, func(l xtables.Line) {
			if s.line(l); s.size > maxTable {
				cancel()
			}
		})
		if s.size > maxTable {
			err = nft.ErrTooMuch
		}
		return s.table, err
	})
}

// saved is a table that is being read.
type saved struct {
	table  *table
	family plan.Family
	size   int
}

func (s *saved) line(l xtables.Line) {
	s.size += len(l.Chain) + len(l.Rule)
	c := s.table.chain(l.Chain)
	if l.IsRule {
		rule, marks := parseRule(s.family, l.Rule)
		c.rules = append(c.rules, rule)
		s.table.marks = s.table.marks || marks
		return
	}
	c.kind, c.hook, c.priority, c.drops = "filter", builtin[l.Chain], priorities[s.table.name], l.Policy == "DROP"
}
