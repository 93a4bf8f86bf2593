package file

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

func toJSON(text []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if expand(&document, maxExpanded, 0) < 0 {
		return nil, errors.New("yaml: with its aliases it has more than 16 MiB, or it nests too deep")
	}
	if err := asKubectl(&document); err != nil {
		return nil, err
	}
	var value any
	if err := document.Decode(&value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}

// maxExpanded limits the size of a document after the expansion of all aliases. The library (go.yaml.in/yaml v3.0)
// limits only the number of values: 3,000 aliases of 1 MB of text became 3 GB of JSON.
const maxExpanded = 16 << 20

// expand returns left minus the size of a node. The result is negative if the node is larger than left or nests too
// deeply.
func expand(n *yaml.Node, left, depth int) int {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if left -= len(n.Value) + 1; depth > 1000 {
		return -1 // also stops at an anchor that contains itself
	}
	for _, child := range n.Content {
		if left < 0 {
			break
		}
		left = expand(child, left, depth+1)
	}
	return left
}

// asKubectl changes the types of scalars to the types that kubectl uses. The library (go.yaml.in/yaml v3.0) implements
// YAML 1.2, but kubectl uses version 2 of the library, which implements YAML 1.1: "yes" is true, and a time is a
// string. All field names are strings.
func asKubectl(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		scalarAsKubectl(n)
	}
	for i, child := range n.Content {
		convert := asKubectl
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			convert = nameAsKubectl
		}
		if err := convert(child); err != nil {
			return err
		}
	}
	return nil
}

func nameAsKubectl(n *yaml.Node) error {
	switch n.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		return fmt.Errorf("yaml: line %d: a key is neither a word nor a number", n.Line)
	case yaml.ScalarNode:
		if n.ShortTag() != "!!merge" {
			n.Tag = "!!str"
		}
	}
	return nil
}

func scalarAsKubectl(n *yaml.Node) {
	switch tag := n.ShortTag(); {
	case tag == "!!timestamp":
		n.Tag = "!!str"
	case tag != "!!str" || n.Style != 0: // quoted scalars and other types stay unchanged
	case slices.Contains(trueWords, n.Value):
		n.Tag, n.Value = "!!bool", "true"
	case slices.Contains(falseWords, n.Value):
		n.Tag, n.Value = "!!bool", "false"
	}
}

// The words that are booleans in YAML 1.1 but strings in YAML 1.2.
var (
	trueWords  = []string{"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"}
	falseWords = []string{"n", "N", "no", "No", "NO", "off", "Off", "OFF"}
)
