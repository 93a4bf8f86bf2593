package control

import (
	"io"
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

// escapes would take over a terminal, and forge a line.
const escapes = "\x1b]0;owned\a\x1b[2J\u009b2J\x9b2J\u202e\r\nbackend    forged"

// spoil writes escapes into each text that v holds, lists of one and nested ones included.
func spoil(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(escapes)
	case reflect.Slice:
		if v.Type().Elem().PkgPath() != "net/netip" {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			spoil(v.Index(0))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		spoil(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				spoil(v.Field(i))
			}
		}
	}
}

func TestNothingThatIsPrintedMovesTheTerminal(t *testing.T) {
	var status Status
	var plan Plan
	var explanation Explanation
	var services ServiceTable
	for _, v := range []interface{ WriteText(io.Writer) error }{&status, &plan, &explanation, &services} {
		spoil(reflect.ValueOf(v).Elem())
		var out strings.Builder
		if err := v.WriteText(&out); err != nil {
			t.Fatal(err)
		}
		text := out.String()
		if !strings.Contains(text, `\u001b]0;owned\u0007\u001b[2J\u009b2J\x9b2J\u202e`) {
			t.Errorf("%T does not print what was there:\n%q", v, text)
		}
		if !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool {
			return r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
		}) || strings.Contains(text, "\nbackend    forged") {
			t.Errorf("%T prints\n%q", v, text)
		}
	}
}
