package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"go.yaml.in/yaml/v2"
)

// The bounds of a document as JSON. Without aliases it has at most five times its text, and hardly ever more than that.
const (
	maxGrowth = 16
	maxJSON   = 2 * maxFile
)

var errGrowth = fmt.Errorf("with its aliases replaced it is more than %d times as large, or more than %d MiB: write the values out", maxGrowth, maxJSON>>20)

// toJSON reads YAML as sigs.k8s.io/yaml does, and so as kubectl does.
func toJSON(text []byte) ([]byte, error) {
	if err := checkAliases(text); err != nil {
		return nil, err
	}
	var value any
	if err := yaml.UnmarshalStrict(text, &value); err != nil {
		var all *yaml.TypeError
		if errors.As(err, &all) {
			all.Errors = all.Errors[:min(len(all.Errors), maxFaults)] // there may be one for each value
		}
		return nil, err
	}
	w := writer{limit: min(maxGrowth*max(len(text), 64), maxJSON)}
	w.json = json.NewEncoder(&w.out)
	w.json.SetEscapeHTML(false) // six times as large
	if err := w.value(value); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

// writer writes JSON up to a limit.
type writer struct {
	out   bytes.Buffer
	json  *json.Encoder // to out
	limit int
}

func (w *writer) value(v any) error {
	switch v := v.(type) {
	case map[any]any:
		return w.object(v)
	case []any:
		return w.list(v)
	case string: // its size is known before it is copied
		if w.out.Len()+len(v) > w.limit {
			return errGrowth
		}
	}
	if err := w.json.Encode(v); err != nil {
		return err
	}
	w.out.Truncate(w.out.Len() - 1) // the end of the line
	if w.out.Len() > w.limit {
		return errGrowth
	}
	return nil
}

func (w *writer) list(values []any) error {
	w.out.WriteByte('[')
	for i, v := range values {
		if i > 0 {
			w.out.WriteByte(',')
		}
		if err := w.value(v); err != nil {
			return err
		}
	}
	w.out.WriteByte(']')
	return nil
}

func (w *writer) object(values map[any]any) error {
	byName := make(map[string]any, len(values))
	for k, v := range values {
		name, err := nameOf(k)
		if err != nil {
			return err
		}
		byName[name] = v
	}
	w.out.WriteByte('{')
	for i, name := range slices.Sorted(maps.Keys(byName)) {
		if i > 0 {
			w.out.WriteByte(',')
		}
		if err := w.value(name); err != nil {
			return err
		}
		w.out.WriteByte(':')
		if err := w.value(byName[name]); err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	return nil
}

// nameOf gives a key as JSON has it.
func nameOf(key any) (string, error) {
	switch key := key.(type) {
	case string:
		return key, nil
	case int:
		return strconv.Itoa(key), nil
	case float64:
		return strconv.FormatFloat(key, 'g', -1, 32), nil
	case bool:
		return strconv.FormatBool(key), nil
	}
	return "", errKey
}
