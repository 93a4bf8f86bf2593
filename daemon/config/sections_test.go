package config

import (
	"strings"
	"testing"

	"edgeway/proxiers"
)

// Edgeway reads, validates, prints and documents a backend's own section like any other section.
func TestBackendSection(t *testing.T) {
	t.Parallel()
	own := append([]proxiers.Component{{Name: "own", Doc: "to try it", Settings: []proxiers.Setting{
		{Name: "way", Doc: "How", Default: "a", Values: []string{"a", "b"}},
		{Name: "strict", Doc: "Whether", Default: false},
	}}}, choices...)
	read := func(text string) (*Config, error) {
		return load([]file{{"/e.toml", []byte("version = 1\n[source.file]\npaths = [\"/m\"]\n" + text)}}, "host", own)
	}
	c, err := read("[own]\nway = \"b\"\nstrict = true\n")
	if err != nil {
		t.Fatal(err)
	}
	if got := c.Settings("own"); got["way"] != "b" || got["strict"] != true {
		t.Errorf("settings: %v", got)
	}
	if again, err := load([]file{{"/e.toml", []byte(Dump(c))}}, "host", own); err != nil || Dump(again) != Dump(c) {
		t.Errorf("printed and read again: %v", err)
	}
	if d, err := read(""); err != nil || d.Settings("own")["way"] != "a" {
		t.Errorf("the default: %v", err)
	}
	for text, want := range map[string]string{
		"[own]\nway = \"c\"\n": `own.way: "c" is not allowed ("a" or "b")`,
		"[own]\nstrict = 1\n":  "own.strict: must be true or false", "[own]\nno = 1\n": "unknown key",
	} {
		if _, err := read(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if text := CommentedDefault(own); !strings.Contains(text,
		"\n\n# How Allowed: \"a\" or \"b\".\n#own.way = \"a\"\n") {
		t.Error("the file with all keys lacks the keys of the section")
	}
}
