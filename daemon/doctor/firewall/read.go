package firewall

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"os/exec"
	"slices"
	"strings"
	"time"

	"edgeway/daemon/doctor/nft"
	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

const (
	// maxTable bounds the text of a table: some 5,000 rules of nft's, 20,000 of iptables'.
	maxTable = 2 << 20
	// timeBound is for one look, and tableBound for one table. Tables that are not too big take some 10 ms each, and
	// seconds on a busy board.
	timeBound  = 15 * time.Second
	tableBound = 5 * time.Second
	// again is when a table that was too big is read again: to find out costs as much as a table that is not.
	again = 10 * time.Minute
)

// reader reads tables of other programs.
type reader struct {
	// tools are the programs of iptables that were found.
	tools map[toolsKey]*xtables.Tools
	// known are nftables' tables of a generation of them, and previous all that were read. One that has the same text
	// stays the same: a sync of our own makes a generation, too.
	known, previous []*table
	generation      uint16
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

// familyOf is of tables that have one.
var familyOf = map[string]plan.Family{"ip": plan.IPv4, "ip6": plan.IPv6}

// read gives all tables that packets of Services may pass.
func (r *reader) read(ctx context.Context) (out []*table) {
	listed, generation, err := nft.Tables()
	if err != nil {
		out = append(out, &table{wrong: err})
	}
	if r.known == nil || generation != r.generation {
		r.generation, r.known = generation, []*table{}
		for _, l := range listed {
			if t := newTable(l.Family, l.Name); concerns(t) {
				r.known = append(r.known, r.table(ctx, t))
			}
		}
	}
	out = append(out, r.known...)
	if slices.ContainsFunc(out, func(t *table) bool { return t.wrong != nil }) {
		r.known = nil // what failed is tried again
	}
	for _, f := range xtables.HostFamilies() {
		out = append(out, r.legacy(ctx, f)...)
	}
	r.previous = out
	return out
}

// concerns says that packets of Services may pass the table, and that it is not ours.
func concerns(t *table) bool {
	return slices.Contains([]string{"ip", "ip6", "inet"}, t.family) && !proxiers.OwnTable(t.family, t.name) &&
		(t.name != xtables.NAT || !ofIPTables(t))
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
		if read := r.save(ctx, toolsKey{xtables.NFT, familyOf[t.family]}, t.name); read.wrong == nil {
			return read
		}
	}
	return r.bounded(ctx, t, func(ctx context.Context) (*table, error) {
		text, err := nft.Run(ctx, maxTable, "", "-s", "-j", "list", "table", t.family, t.name) // without counters
		if err != nil && strings.Contains(err.Error(), "No such file or directory") {
			return t, nil // it is gone
		}
		if err != nil {
			return nil, err
		}
		tables, err := parseNFT(text)
		if err != nil || len(tables) == 0 {
			return t, err
		}
		tables[0].text = sha256.Sum256(text)
		return tables[0], nil
	})
}

// bounded reads the table of this name unless it has been found to be too big a short while ago.
func (r *reader) bounded(ctx context.Context, t *table, read func(context.Context) (*table, error)) *table {
	key := [3]string{t.family, t.program, t.name}
	failed := &table{family: t.family, name: t.name, program: t.program, wrong: errTooBig}
	if until, ok := r.tooBig[key]; ok && time.Now().Before(until) {
		return failed
	}
	limited, cancel := context.WithTimeout(ctx, tableBound)
	defer cancel()
	found, err := read(limited)
	switch {
	case err == nil:
		same := func(t *table) bool {
			return t.family == found.family && t.program == found.program && t.name == found.name &&
				t.text == found.text && t.wrong == nil
		}
		if i := slices.IndexFunc(r.previous, same); i >= 0 {
			return r.previous[i]
		}
		return found
	case errors.Is(err, nft.ErrTooMuch), limited.Err() != nil && ctx.Err() == nil:
		r.tooBig[key] = time.Now().Add(again)
	default:
		failed.wrong = err
	}
	return failed
}

var errTooBig = fmt.Errorf("it has too many rules to read them again and again (more than %d MiB of text, or more than %s)", maxTable>>20, tableBound)

// priorities are those of iptables' tables.
var priorities = map[string]int{"raw": -300, "mangle": -150, "filter": 0, "security": 50}

// builtin gives the hook of a chain that tables of iptables have by themselves.
var builtin = map[string]string{
	"PREROUTING": "prerouting", "INPUT": "input", "FORWARD": "forward", "OUTPUT": "output", "POSTROUTING": "postrouting",
}

// legacy reads all tables of iptables-legacy, which are in the kernel beside nftables.
func (r *reader) legacy(ctx context.Context, f plan.Family) (out []*table) {
	names, err := xtables.Tables(xtables.Legacy, f)
	if err != nil {
		return nil // a daemon without privileges cannot know; "edgeway doctor" of root can
	}
	for _, name := range names {
		if _, known := priorities[name]; known {
			out = append(out, r.save(ctx, toolsKey{xtables.Legacy, f}, name))
		}
	}
	return out
}

// command is the program that changes single rules: that with a long name if there is one.
func command(family string, v xtables.Variant) string {
	plain := family + "tables"
	if long := plain + "-" + string(v); exec.Command(long).Err == nil {
		return long
	}
	return plain
}

// save reads a table by iptables-save.
func (r *reader) save(ctx context.Context, key toolsKey, name string) *table {
	t := newTable(map[plan.Family]string{plan.IPv4: "ip", plan.IPv6: "ip6"}[key.family], name)
	t.program = command(t.family, key.variant)
	tools := r.tools[key]
	if tools == nil {
		if tools, t.wrong = xtables.Open(ctx, key.variant, key.family); t.wrong != nil {
			return t
		}
		r.tools[key] = tools
	}
	return r.bounded(ctx, t, func(ctx context.Context) (*table, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		s := saving{table: t, text: sha256.New()}
		err := tools.Save(ctx, name, func(l xtables.Line) {
			if s.line(l); s.size > maxTable {
				cancel()
			}
		})
		if s.size > maxTable {
			err = nft.ErrTooMuch
		}
		s.text.Sum(t.text[:0])
		return s.table, err
	})
}

// saving is a table that is being read.
type saving struct {
	table *table
	size  int
	text  hash.Hash
}

func (s *saving) line(l xtables.Line) {
	if s.size += len(l.Chain) + len(l.Rule); s.size > maxTable {
		return
	}
	policy, _, _ := strings.Cut(l.Policy, " ") // a counter follows
	fmt.Fprintf(s.text, "%q %t %q %q\n", l.Chain, l.IsRule, l.Rule, policy)
	c := s.table.chain(l.Chain)
	if l.IsRule {
		rule, marks := parseRule(l.Rule)
		c.rules = append(c.rules, rule)
		s.table.marks = s.table.marks || marks
		return
	}
	c.kind, c.hook, c.priority, c.drops = "filter", builtin[l.Chain], priorities[s.table.name], policy == "DROP"
}
