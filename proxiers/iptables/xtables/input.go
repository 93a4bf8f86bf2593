package xtables

import (
	"bytes"
	"slices"
)

// ChainID names a chain of one family.
type ChainID struct{ Table, Name string }

// Chain is one with all of its rules, each the text after "-A NAME ".
type Chain struct {
	ChainID
	Rules []string
}

// Input is what one run of iptables-restore --noflush is to do to one family. Each table's part takes
// effect as a whole or not at all.
type Input struct {
	parts map[string]*part
	// Rules counts those that are written, by table, and Lines all that change something.
	Rules map[string]int
	Lines int
}

// part is one table's. All chains are declared, which also empties them, before any rule names them,
// and deleted when no rule does any more.
type part struct {
	declared, rules, builtin, removed bytes.Buffer
}

// NewInput makes one that does nothing.
func NewInput() *Input { return &Input{parts: map[string]*part{}, Rules: map[string]int{}} }

// Tables is the number of tables that it changes.
func (in *Input) Tables() int { return len(in.parts) }

// Write replaces a chain's rules, and makes the chain if there is none.
func (in *Input) Write(c Chain) {
	p := in.declare(c.ChainID)
	for _, r := range c.Rules {
		in.line(&p.rules, "-A", c.Name, r)
	}
	in.Rules[c.Table] += len(c.Rules)
}

// Remove deletes a chain that nothing leads to any more.
func (in *Input) Remove(id ChainID) {
	in.line(&in.declare(id).removed, "-X", id.Name)
}

// Builtin runs a command on a built-in chain: "-I" or "-D".
func (in *Input) Builtin(id ChainID, command, rest string) {
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

// Bytes is the input of the program. Its tables are in the order of the list.
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
