package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// setting is one "key = value" pair in a file, or an empty table.
type setting struct {
	key   string // key is the full name, such as "proxy.backend"
	line  int
	value any
}

// Error is an error in the configuration.
type Error struct {
	File string
	Line int    // Line is 0 if the error does not concern a single line
	Key  string // Key is the full name, or "" if the error does not concern a single key
	Err  error
}

// Error returns "file:line: key: error".
func (e *Error) Error() string {
	s := e.File
	if e.Line > 0 {
		s = fmt.Sprintf("%s:%d", s, e.Line)
	}
	if e.Key != "" {
		s += ": " + e.Key
	}
	return s + ": " + e.Err.Error()
}

// Unwrap returns the error without the file, line and key.
func (e *Error) Unwrap() error { return e.Err }

// decode returns the settings of a file, including the keys of all tables, in line order. The caller rejects keys that
// are not in the schema.
func decode(name string, data []byte) ([]setting, error) {
	var root map[string]toml.Primitive
	meta, err := toml.Decode(string(data), &root)
	if err != nil {
		return nil, syntaxError(name, err)
	}
	d := decoder{meta: &meta}
	d.table("", root)
	slices.SortStableFunc(d.settings, func(a, b setting) int {
		return cmp.Or(cmp.Compare(a.line, b.line), cmp.Compare(a.key, b.key))
	})
	return d.settings, nil
}

func syntaxError(name string, err error) error {
	if parse, ok := errors.AsType[toml.ParseError](err); ok {
		text := parse.Message
		// The user may have written a value such as "nftables" or "127.0.0.1" without quotes.
		if strings.Contains(text, "expected value but found \"") || strings.HasPrefix(text, "Invalid float") {
			text += "; text needs quotes"
		}
		return &Error{File: name, Line: parse.Position.Line, Err: errors.New(text)}
	}
	return &Error{File: name, Err: err}
}

type decoder struct {
	meta     *toml.MetaData
	settings []setting
}

func (d *decoder) table(prefix string, table map[string]toml.Primitive) {
	for name, primitive := range table {
		key := toml.Key{name}.String()
		if prefix != "" {
			key = prefix + "." + key
		}
		var inner map[string]toml.Primitive
		if d.meta.PrimitiveDecode(primitive, &inner) == nil && len(inner) > 0 {
			d.table(key, inner)
			continue
		}
		var v any
		if err := d.meta.PrimitiveDecode(primitive, &v); err != nil {
			v = err // this never happens, because every TOML value decodes into an any
		}
		d.settings = append(d.settings, setting{key: key, line: d.line(primitive), value: v})
	}
}

// line returns the line number of a key. The TOML library (v1.6.0) reports positions only in errors, so this method
// provokes an error.
func (d *decoder) line(primitive toml.Primitive) int {
	err := d.meta.PrimitiveDecode(primitive, &refuser{})
	parse, _ := errors.AsType[toml.ParseError](err)
	return parse.Position.Line
}

type refuser struct{}

var errRefused = errors.New("refused")

// UnmarshalTOML implements toml.Unmarshaler.
func (*refuser) UnmarshalTOML(any) error { return errRefused }
