package file

import (
	"errors"

	"go.yaml.in/yaml/v3"
	sigsyaml "sigs.k8s.io/yaml"
)

// toJSON converts a document with sigs.k8s.io/yaml, as kubectl does. sigs.k8s.io/yaml implements YAML 1.1, where "yes"
// is true. Before the conversion, toJSON parses the document with go.yaml.in/yaml v3, because only that library's
// errors have line numbers.
func toJSON(text []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	if remainingBudget(&document, maxExpanded, 0) < 0 {
		return nil, errors.New("yaml: after alias expansion, the document is larger than 16 MiB or nested too deeply")
	}
	if err := document.Decode(new(any)); err != nil { // finds duplicate keys
		return nil, err
	}
	return sigsyaml.YAMLToJSON(text)
}

// maxExpanded is the maximum size, in bytes, of a document after the expansion of all aliases. The library
// (go.yaml.in/yaml v3.0) limits only the number of values. Without maxExpanded, 3,000 aliases to 1 MB of text became
// 3 GB of JSON.
const maxExpanded = 16 << 20

// remainingBudget returns the budget minus the size of a node. A negative result means that the node exceeds the budget
// or is nested too deeply.
func remainingBudget(n *yaml.Node, budget, depth int) int {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if budget -= len(n.Value) + 1; depth > 1000 {
		return -1 // also stops at an anchor that contains itself
	}
	for _, child := range n.Content {
		if budget < 0 {
			break
		}
		budget = remainingBudget(child, budget, depth+1)
	}
	return budget
}
