package file

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"edgeway/proxiers/fault"
)

// locate sets the line of each fault in a document to the line of the fault's field, or of the nearest enclosing field
// that exists. locate parses the document a second time, but only if the document has faults, which is rare.
func (d *document) locate(path string, p part) {
	if !d.hasFaults() {
		return
	}
	var root yaml.Node
	if yaml.Unmarshal(p.text, &root) != nil || len(root.Content) == 0 {
		root = yaml.Node{Content: []*yaml.Node{{Line: 1}}}
	}
	place := func(faults []fault.Fault, at string) {
		for i := range faults {
			if f := &faults[i]; f.Position == "" {
				f.Position = formatPosition(path, p.lines+lineOf(root.Content[0], join(at, f.Field)))
			}
		}
	}
	place(d.faults, "")
	for _, obj := range d.objects {
		place(obj.Problems(), d.listPaths[obj.Key()])
	}
}

func formatPosition(path string, line int) string { return path + ":" + strconv.Itoa(line) }

// lineOf returns the line of the field at a path such as "spec.ports[0].port".
func lineOf(n *yaml.Node, field string) int {
	line := n.Line
	for field != "" {
		var step string
		step, field = cutStep(field)
		name, value := childNodes(n, step)
		if value == nil {
			break
		}
		line, n = name.Line, value
	}
	return line
}

// childNodes returns the nodes of a field's name and value. For a list item, both results are the item's node. Both
// results are nil if n lacks the field or item.
func childNodes(n *yaml.Node, step string) (name, value *yaml.Node) {
	switch n.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(n.Content) {
			return n.Content[i], n.Content[i]
		}
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			if n.Content[i].Value == step {
				return n.Content[i], n.Content[i+1]
			}
		}
	case yaml.AliasNode:
		return childNodes(n.Alias, step)
	}
	return nil, nil
}

// cutStep splits the first step off a path. A step is a field name, such as "spec", or the text between brackets, such
// as "0" in "[0]".
func cutStep(field string) (step, rest string) {
	if inner, ok := strings.CutPrefix(field, "["); ok {
		step, rest, _ = strings.Cut(inner, "]")
		return step, strings.TrimPrefix(rest, ".")
	}
	i := strings.IndexAny(field, ".[")
	if i < 0 {
		return field, ""
	}
	return field[:i], strings.TrimPrefix(field[i:], ".")
}
