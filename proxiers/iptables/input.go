package iptables

import (
	"bytes"
	"slices"
)

// input is what one run of iptables-restore --noflush is to do to one family. Each table's part takes
// effect as a whole or not at all.
type input struct {
	parts map[string]*part
	// rules counts those that are written, by table.
	rules map[string]int
}

// part is one table's. All chains are declared, which also empties them, before any rule names them,
// and deleted when no rule does any more.
type part struct {
	declared, rules, hooked, removed bytes.Buffer
}

func newInput() *input {
	return &input{parts: map[string]*part{}, rules: map[string]int{}}
}

func (in *input) part(table string) *part {
	if in.parts[table] == nil {
		in.parts[table] = &part{}
	}
	return in.parts[table]
}

// write replaces a chain's rules, and makes the chain if there is none.
func (in *input) write(c chain) {
	p := in.part(c.table)
	declare(p, c.name)
	for _, r := range c.rules {
		line(&p.rules, "-A", c.name, r)
	}
	in.rules[c.table] += len(c.rules)
}

// remove deletes a chain that nothing leads to any more.
func (in *input) remove(id chainID) {
	p := in.part(id.table)
	declare(p, id.name)
	line(&p.removed, "-X", id.name)
}

// hook runs a command on a built-in chain: "-I" or "-D".
func (in *input) hook(table, command, chain, rest string) {
	line(&in.part(table).hooked, command, chain, rest)
}

func declare(p *part, name string) { line(&p.declared, ":"+name, "-", "[0:0]") }

func line(b *bytes.Buffer, words ...string) {
	for i, w := range words {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w)
	}
	b.WriteByte('\n')
}

func (in *input) empty() bool { return len(in.parts) == 0 }

// size is the number of lines that change something.
func (in *input) size() int {
	n := 0
	for _, p := range in.parts {
		for _, b := range []*bytes.Buffer{&p.declared, &p.rules, &p.hooked, &p.removed} {
			n += bytes.Count(b.Bytes(), []byte("\n"))
		}
	}
	return n
}

// bytes is the input of the program. Its tables are in the order of the list.
func (in *input) bytes() []byte {
	var out bytes.Buffer
	for _, table := range tables {
		p := in.parts[table]
		if p == nil {
			continue
		}
		line(&out, "*"+table)
		out.Write(slices.Concat(p.declared.Bytes(), p.rules.Bytes(), p.hooked.Bytes(), p.removed.Bytes()))
		line(&out, "COMMIT")
	}
	return out.Bytes()
}
