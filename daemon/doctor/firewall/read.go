package firewall

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"edgeway/daemon/doctor/nft"
	"edgeway/proxiers"
	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

const (
	// maxTable is the maximum length of a table's text in bytes, enough for about 20,000 rules.
	maxTable = 2 << 20
	// timeBound is the maximum time for one run of the check.
	timeBound = 15 * time.Second
	// tableBound is the maximum time for reading one table. Reading a table usually takes about 10 ms, but can take
	// seconds on a busy single-board computer.
	tableBound = 5 * time.Second
	// retryDelay is the delay before another attempt to read a table that was too large. The delay is long, because
	// each attempt reads up to maxTable bytes.
	retryDelay = 10 * time.Minute
)

var errTooBig = fmt.Errorf("too many rules to read every minute (limits per table: %d MiB of text and %s)",
	maxTable>>20, tableBound)

type reader struct {
	// tableCache holds the nftables tables that the check last read, and generation is the kernel's generation number
	// at that time. tableCache is nil if the check must read the tables again.
	tableCache []*table
	generation uint16
	// nextAttempts holds, for each table that was too large, the time of the next attempt to read it.
	nextAttempts map[tableID]time.Time
}

// tableID identifies a table that the check reads. For an iptables table, Variant selects the variant of iptables-save
// that the check runs.
type tableID struct {
	nft.Table
	xtables.Variant
}

// read returns other programs' tables that Service packets may pass through.
func (r *reader) read(ctx context.Context) (out []*table) {
	listed, generation, err := nft.Tables()
	if err != nil {
		out = append(out, &table{err: err})
	}
	if r.tableCache == nil || generation != r.generation {
		r.generation, r.tableCache = generation, r.readTables(ctx, listed, xtables.NFT)
	}
	out = append(out, r.tableCache...)
	if slices.ContainsFunc(out, func(t *table) bool { return t.err != nil && !errors.Is(t.err, errTooBig) }) {
		r.tableCache = nil // the next call tries again
	}
	for _, f := range proxiers.KernelFamilies() {
		names, _ := xtables.Tables(xtables.Legacy, f) // only root can read these names
		var legacy []nft.Table
		for _, name := range names {
			legacy = append(legacy, nft.Table{Family: families[f], Name: name})
		}
		out = append(out, r.readTables(ctx, legacy, xtables.Legacy)...)
	}
	return out
}

var families = map[plan.Family]string{plan.IPv4: "ip", plan.IPv6: "ip6"}

// readTables reads the tables one at a time, and the iptables nat tables last. readTables skips a nat table that
// Edgeway itself uses, because that table may be huge.
func (r *reader) readTables(ctx context.Context, listed []nft.Table, v xtables.Variant) []*table {
	out, nat := []*table{}, []nft.Table{}
	for _, l := range listed {
		switch {
		case isNAT(l):
			nat = append(nat, l)
		case isRelevant(l):
			out = append(out, r.readUnlessTooBig(ctx, tableID{l, v}))
		}
	}
	for _, l := range nat {
		if !slices.ContainsFunc(out, func(t *table) bool { return t.family == l.Family && t.hasEdgewayRules() }) {
			t := r.readUnlessTooBig(ctx, tableID{l, v})
			t.err = nil // a nat table drops no packets, so the error does not matter
			out = append(out, t)
		}
	}
	return out
}

// isRelevant reports whether the table belongs to another program and may process Service packets.
func isRelevant(t nft.Table) bool {
	return slices.Contains([]string{"ip", "ip6", "inet"}, t.Family) && !proxiers.IsOwnTable(t.Family, t.Name)
}

// isNAT reports whether the table is the iptables nat table, which translates connections and drops nothing.
func isNAT(t nft.Table) bool { return isIPTables(t) && t.Name == xtables.NAT }

// isIPTables reports whether the table has the name of an iptables table.
func isIPTables(t nft.Table) bool {
	_, known := priorities[t.Name]
	return known && (t.Family == "ip" || t.Family == "ip6")
}

// readUnlessTooBig reads a table, unless an attempt in the last ten minutes (retryDelay) found that the table is too
// large.
func (r *reader) readUnlessTooBig(ctx context.Context, s tableID) *table {
	failed := newTable(s.Family, s.Name)
	if failed.err = errTooBig; time.Now().Before(r.nextAttempts[s]) {
		return failed
	}
	limited, cancel := context.WithTimeout(ctx, tableBound)
	defer cancel()
	t, err := readTable(limited, s)
	switch {
	case err == nil:
		return t
	case errors.Is(err, nft.ErrOutputTooLong), limited.Err() != nil && ctx.Err() == nil:
		r.nextAttempts[s] = time.Now().Add(retryDelay)
	default:
		failed.err = err
	}
	return failed
}

// readTable reads an iptables table with iptables-save, because nft cannot always show iptables matches. readTable
// reads all other tables with nft, including nftables tables that have the name of an iptables table.
func readTable(ctx context.Context, s tableID) (*table, error) {
	if isIPTables(s.Table) {
		t := newTable(s.Family, s.Name)
		t.program = command(s.Family, s.Variant)
		text, err := nft.RunProgram(ctx, maxTable, "", t.program+"-save", "-t", s.Name)
		if err == nil && t.readSave(string(text)) {
			return t, nil
		}
		if s.Variant == xtables.Legacy {
			return nil, err
		}
	}
	t := newTable(s.Family, s.Name)
	text, err := nft.Run(ctx, maxTable, "", "-s", "-y", "list", "table", s.Family, s.Name) // -s omits counters
	if err != nil && strings.Contains(err.Error(), "No such file or directory") {
		return t, nil // the table was deleted
	}
	t.readNFT(string(text))
	return t, err
}

var (
	// hooks maps the built-in iptables chains to their hooks.
	hooks = map[string]string{
		"PREROUTING": "prerouting", "INPUT": "input", "FORWARD": "forward", "OUTPUT": "output",
		"POSTROUTING": "postrouting",
	}
	// priorities maps the iptables tables to the priorities of their built-in chains.
	priorities = map[string]int{"raw": -300, "mangle": -150, xtables.NAT: -100, xtables.Filter: 0, "security": 50}
)

// readSave parses the output of iptables-save. The result is false if the table has chains that only nft can list.
func (t *table) readSave(text string) bool {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "#") && strings.Contains(line, "use 'nft' tool"):
			return false
		case strings.HasPrefix(line, ":") && len(words) > 1:
			c := t.chain(words[0][1:])
			c.priority, c.drops = priorities[t.name], words[1] == "DROP"
			c.setHook(hooks[c.name])
		case strings.HasPrefix(line, "-A ") && len(words) > 2:
			t.chain(words[1]).add(strings.TrimSpace(strings.TrimPrefix(line, "-A "+words[1])))
		}
	}
	return true
}

// readNFT parses the output of "nft -y list table", such as "type filter hook forward priority 0; policy drop;".
// readNFT ignores the hooks of nat chains, because nat chains drop no packets.
func (t *table) readNFT(text string) {
	var c *chain
	for line := range strings.Lines(text) {
		name, isChain := strings.CutPrefix(line, "\tchain ")
		rule, inChain := strings.CutPrefix(line, "\t\t")
		words := strings.Fields(rule)
		switch {
		case isChain:
			c = t.chain(strings.TrimSuffix(strings.TrimSpace(name), " {"))
		case !inChain:
			c = nil
		case c == nil, len(words) == 0, words[0] == "comment":
		case words[0] == "type" && len(words) > 5 && words[1] != "nat":
			c.priority, _ = strconv.Atoi(strings.TrimSuffix(words[5], ";"))
			c.drops = slices.Contains(words, "drop;")
			c.setHook(words[3])
		case words[0] != "type":
			c.add(strings.TrimSpace(rule))
		}
	}
}

func newTable(family, name string) *table {
	return &table{family: family, name: name, chains: map[string]*chain{}}
}

// chain returns the chain called name, and adds it to the table if it does not exist.
func (t *table) chain(name string) *chain {
	c := t.chains[name]
	if c == nil {
		c = &chain{table: t, name: name}
		t.chains[name] = c
	}
	return c
}

func (c *chain) setHook(hook string) {
	if c.hook = hook; hook != "" {
		c.table.bases = append(c.table.bases, c)
	}
}

// command returns the name of the iptables program for a family and a variant. The result is the long name, such as
// iptables-nft, if a program with that name exists.
func command(family string, v xtables.Variant) string {
	plain := family + "tables"
	if long := plain + "-" + string(v); exec.Command(long).Err == nil {
		return long
	}
	return plain
}
