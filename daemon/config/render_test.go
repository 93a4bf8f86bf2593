package config

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"edgeway/proxiers"
)

// If all keys in the shipped file are uncommented, the file must load as the default configuration.
func TestUncommentedShippedFileEqualsDefaults(t *testing.T) {
	uncommented := regexp.MustCompile(`(?m)^#([\w.]+ = )`).ReplaceAllString(CommentedDefault(choices), "$1")
	if n := len(values(Default(), choices)); strings.Count(uncommented, " = ")-1 < n {
		t.Fatalf("fewer than %d keys in the shipped file", n)
	}
	const extra = "\n" // Load rejects a configuration without a source
	c := Default()
	l := loader{keys: values(c, choices), positions: map[string]*Error{}}
	settings, err := decode("edgeway.toml", []byte(uncommented+extra))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range settings {
		if s.key != versionKey {
			l.set("/edgeway.toml", s)
		}
	}
	if len(l.errs) > 0 {
		t.Fatal(l.errs)
	}
	if got, want := Dump(c), Dump(Default()); got != want {
		t.Errorf("shipped file differs from the defaults:\n%s", cmp.Diff(want, got))
	}
}

// Manual returns the key list in mdoc format.
func Manual(backends []proxiers.Component) string {
	escape := strings.NewReplacer(`\`, `\e`, `"`, `\(dq`, "-", `\-`)
	paragraph := func(b *strings.Builder, text string) {
		for sentence := range strings.SplitSeq(text, ". ") {
			sentence = escape.Replace(strings.TrimSuffix(sentence, "."))
			b.WriteString(`\&` + sentence + ".\n")
		}
	}
	var b strings.Builder
	for _, s := range schema(defaultConfig(backends), backends) {
		b.WriteString(".Ss [" + s.name + "]\n")
		paragraph(&b, s.doc)
		b.WriteString(".Bl -tag -width Ds\n")
		for _, k := range s.keys {
			b.WriteString(".It Sy " + k.name + " No = " + escape.Replace(literal(k.value.get())) + "\n")
			paragraph(&b, k.describe())
		}
		b.WriteString(".El\n")
	}
	return b.String()
}

func TestEveryFieldHasAKey(t *testing.T) {
	c := Default()
	fields := 0
	whole := []reflect.Type{ // a single key sets a field of these types
		reflect.TypeFor[NodePortAddresses](), reflect.TypeFor[HostRanges](), reflect.TypeFor[PortRange](),
	}
	var count func(v reflect.Type)
	count = func(v reflect.Type) {
		for f := range v.Fields() {
			if f.Type.Kind() == reflect.Struct && !slices.Contains(whole, f.Type) {
				count(f.Type)
				continue
			}
			// Fields of the types []Section and []RemovedKey have no fixed key.
			if f.Type != reflect.TypeFor[[]Section]() && f.Type != reflect.TypeFor[[]RemovedKey]() {
				fields++
			}
		}
	}
	count(reflect.TypeFor[Config]())
	if keys := len(values(c, choices)); keys != fields {
		t.Errorf("%d keys for %d fields", keys, fields)
	}
}

func TestDumpRoundTrip(t *testing.T) {
	c := Default()
	c.Node.Name = "edge"
	c.Source.File.Paths = []string{"/a \"b\"", `/c\d`, "/tab\t", "/del\x7f", "/ü"}
	c.Source.Kube.LabelSelector = "edge in (yes, all)"
	c.Source.Kube.Kubeconfig = "/k"
	got, err := load([]file{{"/e.toml", []byte(Dump(c))}}, "host", choices)
	if err != nil {
		t.Fatal(err)
	}
	if Dump(got) != Dump(c) {
		t.Errorf("differs:\n%s", cmp.Diff(Dump(c), Dump(got)))
	}
}
