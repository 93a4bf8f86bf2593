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
	switch {
	case n.Kind == yaml.MappingNode:
		for i := 0; i < len(n.Content); i += 2 {
			switch name := n.Content[i]; {
			case name.Kind == yaml.ScalarNode && name.ShortTag() != "!!merge":
				name.Tag = "!!str"
			case name.Kind == yaml.MappingNode || name.Kind == yaml.SequenceNode:
				return fmt.Errorf("yaml: line %d: a key is neither a word nor a number", name.Line)
			}
		}
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!timestamp":
		n.Tag = "!!str"
	case n.Kind == yaml.ScalarNode && n.Style == 0 && n.ShortTag() == "!!str":
		if slices.Contains(trueWords, n.Value) {
			n.Tag, n.Value = "!!bool", "true"
		} else if slices.Contains(falseWords, n.Value) {
			n.Tag, n.Value = "!!bool", "false"
		}
	}
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 0 {
			continue
		}
		if err := asKubectl(child); err != nil {
			return err
		}
	}
	return nil
}

// The words of YAML 1.1 that YAML 1.2 has not.
var (
	trueWords  = []string{"y", "Y", "yes", "Yes", "YES", "on", "On", "ON"}
	falseWords = []string{"n", "N", "no", "No", "NO", "off", "Off", "OFF"}
)
