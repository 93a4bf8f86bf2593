package control

import (
	"reflect"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"edgeway/daemon/doctor"
)

// escapes is a string that, printed unchanged, would control the terminal and forge a line of output.
const escapes = "\x1b]0;owned\a\x1b[2J\u009b2J\x9b2J\u202e\r\nbackend    forged"

// addEscapes sets every string in v, including nested strings, to escapes, and replaces each slice with a slice of one
// element.
func addEscapes(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(escapes)
	case reflect.Slice:
		if v.Type().Elem().PkgPath() != "net/netip" {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			addEscapes(v.Index(0))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		addEscapes(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				addEscapes(v.Field(i))
			}
		}
	}
}

func TestPrintedTextHasNoControlCharacters(t *testing.T) {
	var status Status
	var explanation Explanation
	var services ServiceTable
	var report doctor.Report
	for _, v := range []answer{&status, &explanation, &services, &report} {
		addEscapes(reflect.ValueOf(v).Elem())
		text := formatText(v, 0, true)
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
