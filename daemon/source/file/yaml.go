package file

import (
	"encoding/json"
	"fmt"
	"slices"

	"go.yaml.in/yaml/v3"
)

// toJSON converts a YAML document to JSON as kubectl does. The library bounds how many values aliases stand for.
func toJSON(text []byte) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, err
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

// asKubectl changes the types of scalars where the library (go.yaml.in/yaml v3.0) reads YAML 1.2 and kubectl, with version
// 2 of the library, YAML 1.1: "yes" is true, and a time is a string. All names of fields are strings.
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
	case tag != "!!str" || n.Style != 0: // quoted, or of another type
	case slices.Contains(trueWords, n.Value):
		n.Tag, n.Value = "!!bool", "true"
	case slices.Contains(falseWords, n.Value):
		n.Tag, n.Value = "!!bool", "false"
	}
}

// The words of YAML 1.1 that YAML 1.2 has not.
var (
	trueWords  = []string{"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"}
	falseWords = []string{"n", "N", "no", "No", "NO", "off", "Off", "OFF"}
)
