package firewall

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// This file reads what "nft -j list" prints (libnftables-json(5)), object by object: its values take many times the
// memory of the text.

// object is one of JSON, and any value of it one of encoding/json's with numbers as they are written.
type object = map[string]any

// parser collects tables.
type parser struct {
	tables []*table
	// sets are the elements of sets and maps, by table, "@" and name.
	sets map[string][]any
}

// parseNFT gives the tables in the order in which they come, and what could be read before an error.
func parseNFT(text []byte) ([]*table, error) {
	p := &parser{sets: map[string][]any{}}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	begin, _ := d.Token()
	_, _ = d.Token() // the only key
	if list, err := d.Token(); err != nil || begin != json.Delim('{') || list != json.Delim('[') {
		return nil, errors.New("output of nft: it is no list of objects")
	}
	for d.More() {
		var item map[string]object
		if err := d.Decode(&item); err != nil {
			return p.tables, fmt.Errorf("output of nft: %w", err)
		}
		for what, o := range item {
			p.take(what, o)
		}
	}
	_, err := d.Token()
	return p.tables, err
}

func stringOf(o object, key string) string {
	s, _ := o[key].(string)
	return s
}

func (p *parser) table(family, name string) *table {
	for _, t := range p.tables {
		if t.family == family && t.name == name {
			return t
		}
	}
	t := newTable(family, name)
	p.tables = append(p.tables, t)
	return t
}

func (p *parser) take(what string, o object) {
	switch what {
	case "table":
		p.table(stringOf(o, "family"), stringOf(o, "name"))
	case "chain":
		c := p.table(stringOf(o, "family"), stringOf(o, "table")).chain(stringOf(o, "name"))
		c.kind, c.hook, c.drops = stringOf(o, "type"), stringOf(o, "hook"), stringOf(o, "policy") == "drop"
		if n, ok := o["prio"].(json.Number); ok {
			priority, _ := n.Int64()
			c.priority = int(priority)
		}
	case "set", "map":
		elements, _ := o["elem"].([]any) // an empty set has none
		p.sets[setKey(stringOf(o, "family"), stringOf(o, "table"), stringOf(o, "name"))] = elements
	case "rule":
		t := p.table(stringOf(o, "family"), stringOf(o, "table"))
		c := t.chain(stringOf(o, "chain"))
		statements, _ := o["expr"].([]any)
		handle, _ := o["handle"].(json.Number)
		r := nftRule{parser: p, table: t}
		r.handle, _ = strconv.ParseUint(handle.String(), 10, 64)
		c.rules = append(c.rules, r.read(statements)...)
	}
}

func setKey(family, table, name string) string {
	return family + " " + table + "@" + strings.TrimPrefix(name, "@")
}

// nftRule reads one rule. A verdict map becomes a rule for each of its elements.
type nftRule struct {
	*parser
	table      *table
	handle     uint64
	conditions []condition
	do         verdict
	to         string
	// mapped are the rules of a verdict map.
	mapped []rule
}

func (r *nftRule) read(statements []any) []rule {
	for _, s := range statements {
		o, _ := s.(object)
		for what, v := range o {
			r.statement(what, v)
		}
	}
	if r.mapped == nil {
		return []rule{{conditions: r.conditions, do: r.do, to: r.to, handle: r.handle}}
	}
	return r.mapped
}

func (r *nftRule) add(c condition) { r.conditions = append(r.conditions, c) }

// statement reads one. What only changes or counts packets lets them go on.
func (r *nftRule) statement(what string, v any) {
	o, _ := v.(object)
	switch what {
	case "match":
		r.add(r.compare(stringOf(o, "op"), o["left"], o["right"]))
	case "vmap":
		r.verdictMap(o)
	case "limit", "quota", "ct count", "meter":
		r.add(fixed(some))
	case "set", "map":
		if o["stmt"] != nil { // a rate for each element, as a rule
			r.add(fixed(some))
		}
	case "mangle":
		if key, _ := o["key"].(object); key["meta"] != nil || key["ct"] != nil {
			r.table.marks = true
		}
	case "xt", "comment":
		// A match or a target of iptables. nft does not say which; those that drop are verdicts of nft's.
		r.add(fixed(maybe))
	case "counter", "log", "continue", "notrack", "flow", "last", "secmark", "dup", "ct helper", "ct timeout",
		"ct expectation", "tunnel":
	default:
		if !r.verdict(what, o) {
			r.add(fixed(maybe))
		}
	}
}

// verdict reads a statement that ends the rule; false: it is none that is known.
func (r *nftRule) verdict(what string, o object) bool {
	switch what {
	case "accept", "dnat", "snat", "masquerade", "redirect", "tproxy":
		r.do = accept
	case "drop", "reject":
		r.do = drop
	case "queue", "synproxy", "fwd":
		r.do = either
	case "return":
		r.do = back
	case "jump", "goto":
		r.do, r.to = jump, stringOf(o, "target")
		if what == "goto" {
			r.do = jumpAway
		}
	default:
		return false
	}
	return true
}

// maxMapped bounds the rules that are made of a verdict map.
const maxMapped = 1000

// verdictMap makes a rule of each element: its key is one more condition.
func (r *nftRule) verdictMap(o object) {
	pairs, known := r.elements(o["data"])
	if !known || len(pairs) > maxMapped {
		r.do = either
		r.add(fixed(maybe))
		return
	}
	r.mapped = []rule{}
	for _, pair := range pairs {
		kv, _ := pair.([]any)
		if len(kv) != 2 {
			continue
		}
		of := nftRule{parser: r.parser, table: r.table, conditions: append([]condition{}, r.conditions...)}
		then, _ := kv[1].(object)
		of.conditions = append(of.conditions, of.keyConditions(o["key"], bare(kv[0]))...)
		for what, v := range then {
			of.statement(what, v)
		}
		r.mapped = append(r.mapped, rule{conditions: of.conditions, do: of.do, to: of.to, handle: r.handle})
	}
}

// keyConditions compares a key with an element of a map, part by part where it has several.
func (r *nftRule) keyConditions(key, element any) (out []condition) {
	k, _ := key.(object)
	e, _ := element.(object)
	keys, several := k["concat"].([]any)
	elements, _ := e["concat"].([]any)
	switch {
	case !several:
		keys, elements = []any{key}, []any{element}
	case len(keys) != len(elements):
		return []condition{fixed(maybe)}
	}
	for i := range keys {
		out = append(out, r.compare("==", keys[i], elements[i]))
	}
	return out
}

// bare takes an element out of what surrounds it if it has a timeout, a counter or a comment.
func bare(v any) any {
	if o, ok := v.(object); ok {
		if e, ok := o["elem"].(object); ok {
			return e["val"]
		}
	}
	return v
}

// elements gives those of a set: an anonymous one, or by "@" and its name.
func (r *nftRule) elements(v any) (list []any, known bool) {
	switch v := v.(type) {
	case string:
		list, known = r.sets[setKey(r.table.family, r.table.name, v)]
	case object:
		list, known = v["set"].([]any)
	}
	return list, known
}
