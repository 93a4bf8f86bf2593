package file

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"edgeway/daemon/text"
)

// meant returns the name of the field of type t that most closely resembles the last step of a path.
func meant(t reflect.Type, path string) (name string, ok bool) {
	for {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		var step string
		switch step, path = cutStep(path); t.Kind() {
		case reflect.Slice:
			t = t.Elem()
			continue
		case reflect.Struct:
		default:
			return "", false
		}
		fields := fieldTypes(t)
		if path == "" {
			return text.Nearest(step, slices.Sorted(maps.Keys(fields)))
		}
		if t, ok = fields[step]; !ok {
			return "", false
		}
	}
}

// fieldTypes maps the JSON names of a struct's fields to the fields' types.
func fieldTypes(t reflect.Type) map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for f := range t.Fields() {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Anonymous && name == "":
			maps.Copy(out, fieldTypes(f.Type))
		case name != "" && name != "-":
			out[name] = f.Type
		}
	}
	return out
}
