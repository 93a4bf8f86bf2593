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

// maxGrowth is how many times its text a document may have as JSON. Without aliases it stays below 8.
const maxGrowth = 16

var errGrowth = fmt.Errorf("with its aliases replaced it is more than %d times as large: write the values out", maxGrowth)

// toJSON reads YAML as sigs.k8s.io/yaml does, and so as kubectl does. The library bounds how many values aliases
// stand for (v2.4: some 400,000, or a tenth of a large document's), but not their size.
func toJSON(text []byte) ([]byte, error) {
	var value any
	if err := yaml.UnmarshalStrict(text, &value); err != nil {
		return nil, err
	}
	w := writer{limit: maxGrowth * max(len(text), 64)}
	if err := w.value(value); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

// writer writes JSON up to a limit.
type writer struct {
	out   bytes.Buffer
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
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.out.Write(data)
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
	return "", errors.New("a key is neither a word nor a number")
}
