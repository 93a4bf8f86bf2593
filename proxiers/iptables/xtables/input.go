package xtables

import (
	"bytes"
	"slices"
)

// ChainID identifies a chain within one family.
type ChainID struct{ Table, Name string }

// Chain is a chain with all its rules. A rule is the text after "-A NAME ".
type Chain struct {
	ChainID
	Rules []string
}

// Input is the input for one run of iptables-restore --noflush for one family. Each table changes atomically.
type Input struct {
	parts map[string]*part
	// Rules counts the rules by table. Lines counts all lines that change the tables.
	Rules map[string]int
	Lines int
}

// part is the input for one table. A chain's declaration also empties the chain, and precedes all rules that jump to
// the chain. The commands that remove chains come last.
type part struct {
	declared, rules, builtin, removed bytes.Buffer
}

// NewInput returns an empty Input.
func NewInput() *Input { return &Input{parts: map[string]*part{}, Rules: map[string]int{}} }

// Tables returns the number of tables that the Input changes.
func (in *Input) Tables() int { return len(in.parts) }

// Write replaces a chain's rules, and creates the chain if necessary.
func (in *Input) Write(c Chain) {
	p := in.declare(c.ChainID)
	for _, r := range c.Rules {
		in.line(&p.rules, "-A", c.Name, r)
	}
	in.Rules[c.Table] += len(c.Rules)
}

// Remove deletes a chain. After the other changes in the Input, no rule may refer to the removed chain.
func (in *Input) Remove(id ChainID) {
	in.line(&in.declare(id).removed, "-X", id.Name)
}

// AddBuiltinCommand adds an "-I" or "-D" command for a rule in a built-in chain.
func (in *Input) AddBuiltinCommand(id ChainID, command, rest string) {
	in.line(&in.part(id.Table).builtin, command, id.Name, rest)
}

func (in *Input) declare(id ChainID) *part {
	p := in.part(id.Table)
	in.line(&p.declared, ":"+id.Name, "-", "[0:0]")
	return p
}

func (in *Input) part(table string) *part {
	if in.parts[table] == nil {
		in.parts[table] = &part{}
	}
	return in.parts[table]
}

func (in *Input) line(b *bytes.Buffer, words ...string) {
	in.Lines++
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w)
	}
	b.WriteByte('\n')
}

// Bytes returns the text of the Input, with the tables in the order of allTables.
func (in *Input) Bytes() []byte {
	var out []byte
	for _, table := range allTables {
		if p := in.parts[table]; p != nil {
			out = slices.Concat(out, []byte("*"+table+"\n"), p.declared.Bytes(), p.rules.Bytes(), p.builtin.Bytes(),
				p.removed.Bytes(), []byte("COMMIT\n"))
		}
	}
	return out
}
