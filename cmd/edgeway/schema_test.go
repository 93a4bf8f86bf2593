package main

import (
	"encoding"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/invopop/jsonschema"

	"edgeway/daemon/control"
	"edgeway/daemon/doctor"
	"edgeway/proxiers/plan"
)

var update = flag.Bool("update", false, "write the JSON schemas anew")

// The packages install a schema for each command's JSON output. Programs may rely on the schemas. A change that does
// more than add fields to a golden file therefore needs a new apiVersion.
func TestSchemas(t *testing.T) {
	for kind, answer := range map[string]any{
		"Status": control.Status{}, "ServiceList": control.ServiceTable{}, "Plan": control.Plan{},
		"Explanation": control.Explanation{}, "DoctorReport": doctor.Report{}, "Version": buildInfo{},
	} {
		reflector := jsonschema.Reflector{Anonymous: true, AllowAdditionalProperties: true, Mapper: overrideSchema}
		schema := reflector.Reflect(answer)
		schema.Title = "edgeway " + kind
		top := schema.Definitions[strings.TrimPrefix(schema.Ref, "#/$defs/")]
		top.Properties.Set("apiVersion", &jsonschema.Schema{Const: apiVersion})
		top.Properties.Set("kind", &jsonschema.Schema{Const: kind})
		top.Required = append(top.Required, "apiVersion", "kind")
		want, err := json.MarshalIndent(schema, "", "  ")
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, '\n')
		path := filepath.Join("../../packaging/schema", kind+".json")
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s is out of date; run go test ./cmd/edgeway -run Schemas -update (-want +got):\n%s", path, diff)
		}
	}
}

// overrideSchema overrides the schemas of types that encoding/json encodes as strings. overrideSchema also overrides
// the schema of Pools, because encoding/json encodes an unused pool as null.
func overrideSchema(t reflect.Type) *jsonschema.Schema {
	if t == reflect.TypeOf(plan.ServicePort{}.Pools) {
		n := uint64(t.Len())
		pool := &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Ref: "#/$defs/Endpoint"}}
		or := []*jsonschema.Schema{pool, {Type: "null"}}
		return &jsonschema.Schema{Type: "array", MinItems: &n, MaxItems: &n, Items: &jsonschema.Schema{OneOf: or}}
	}
	if t != reflect.TypeFor[time.Time]() && t.Implements(reflect.TypeFor[encoding.TextMarshaler]()) {
		return &jsonschema.Schema{Type: "string"}
	}
	return nil
}
