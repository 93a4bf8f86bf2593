package conformance

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"edgeway/proxiers/nftables"
)

func TestNftables(t *testing.T) { Run(t, nftablesBackend()) }

func nftablesBackend() Backend {
	return Backend{
		Component:      nftables.Component(),
		CountsLoopback: true,
		Dump:           func(ctx context.Context) (string, error) { return dumpTable(ctx, "edgeway") },
		Sequences:      15, // nft 1.0.6 takes seconds to list large maps
		Damages: map[string]func(context.Context) error{
			"all rules are flushed":     nftCommand("flush ruleset"),
			"one table is deleted":      nftCommand("delete table ip6 edgeway"),
			"an element is deleted":     deleteAnElement,
			"a rule is deleted":         nftCommand("flush chain ip edgeway nat-postrouting"),
			"a rule is added":           nftCommand("insert rule ip edgeway nat-prerouting accept"),
			"an element is added":       nftCommand("add element ip edgeway cluster-ips { 203.0.113.99 }"),
			"a foreign chain is added":  nftCommand("add chain ip edgeway stranger"),
			"all elements of a set go":  nftCommand("flush map ip6 edgeway services"),
			"service CIDRs are changed": nftCommand("flush set ip edgeway service-cidrs"),
		},
	}
}

func nftCommand(command string) func(context.Context) error {
	return func(ctx context.Context) error {
		_, err := nft(ctx, strings.Fields(command)...)
		return err
	}
}

func nft(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "nft", args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("nft %v: %w: %s", args, err, out)
	}
	return string(out), nil
}

func deleteAnElement(ctx context.Context) error {
	objects, err := listNftables(ctx, "edgeway")
	if err != nil {
		return err
	}
	for name, o := range objects {
		if name, ok := strings.CutPrefix(name, "ip map endpoints"); ok && len(o.elements) > 0 {
			_, err = nft(ctx, "delete", "element", "ip", "edgeway", "endpoints"+name, "{", o.elements[0], "}")
			return err
		}
	}
	return fmt.Errorf("no endpoint in %v", slices.Sorted(maps.Keys(objects)))
}

type nftObject struct {
	lines    []string // the rules of a chain, or the properties of a set
	elements []string // elements is sorted
}

// dumpTable returns the sorted contents of the nft tables with the given name. The dump omits the clients in affinity
// maps. The dump also omits unreferenced chains and maps, because they have no effect and the backend deletes them
// later.
func dumpTable(ctx context.Context, table string) (string, error) {
	objects, err := listNftables(ctx, table)
	if err != nil {
		return "", err
	}
	for n := -1; n != len(objects); {
		n = len(objects)
		mentioned := mentionedWords(objects)
		maps.DeleteFunc(objects, func(name string, o nftObject) bool { return isUnused(name, o, mentioned) })
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(objects)) {
		o := objects[name]
		fmt.Fprintf(&b, "%s\n\t%s\n", name, strings.Join(append(o.lines, o.elements...), "\n\t"))
	}
	return b.String(), nil
}

// mentionedWords returns every word in the rules and elements, prefixed with the table's address family, as in "ip
// endpoints".
func mentionedWords(objects map[string]nftObject) map[string]bool {
	words := map[string]bool{}
	for name, o := range objects {
		family, _, _ := strings.Cut(name, " ")
		for _, line := range slices.Concat(o.lines, o.elements) {
			for _, word := range strings.FieldsFunc(line,
				func(r rune) bool { return strings.ContainsRune(" @,{}", r) }) {
				words[family+" "+word] = true
			}
		}
	}
	return words
}

// isUnused reports whether an object is a Service's chain or map that no rule or element references.
func isUnused(name string, o nftObject, mentioned map[string]bool) bool {
	words := strings.Fields(name)
	family, kind, short := words[0], words[1], words[2]
	ofService := kind == "chain" || kind == "map" && strings.HasPrefix(short, "clients-")
	return ofService && !mentioned[family+" "+short] && !strings.Contains(strings.Join(o.lines, "\n"), "hook ")
}

// listNftables returns the objects in the nft tables with the given name.
func listNftables(ctx context.Context, table string) (map[string]nftObject, error) {
	objects := map[string]nftObject{}
	for _, family := range []string{"ip", "ip6", "inet"} {
		text, err := nft(ctx, "-s", "-n", "list", "tables", family)
		if err != nil {
			return nil, err
		}
		if !strings.Contains(text, "table "+family+" "+table+"\n") {
			continue
		}
		if text, err = nft(ctx, "-s", "-n", "list", "table", family, table); err != nil {
			return nil, err
		}
		parseNftTable(family, text, objects)
	}
	return objects, nil
}

// parseNftTable parses the output of "nft list table". nft indents each object by one tab, and the lines within an
// object by two tabs.
func parseNftTable(family, text string, objects map[string]nftObject) {
	var name string
	var o nftObject
	inElements := false
	for _, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "\t") && !strings.HasPrefix(line, "\t\t") && strings.HasSuffix(line, "{"):
			name, o = family+" "+strings.TrimSuffix(trimmed, " {"), nftObject{}
		case line == "\t}":
			slices.Sort(o.elements)
			if slices.ContainsFunc(o.lines, func(l string) bool {
				return strings.HasPrefix(l, "flags") &&
					strings.Contains(l, "dynamic")
			}) {
				o.elements = nil
			}
			objects[name] = o
		case strings.HasPrefix(trimmed, "elements = {") || inElements:
			list := strings.TrimPrefix(trimmed, "elements = {")
			inElements = !strings.HasSuffix(list, "}")
			for _, e := range strings.Split(strings.TrimSuffix(list, "}"), ",") {
				if e = strings.TrimSpace(e); e != "" {
					o.elements = append(o.elements, e)
				}
			}
		case strings.HasPrefix(line, "\t\t"):
			// If a map has a size, nft 1.1.7 prints the number of elements in the map, even with the option -s, which
			// omits stateful information.
			line, _, _ := strings.Cut(trimmed, "\t# count ")
			o.lines = append(o.lines, line)
		}
	}
}
