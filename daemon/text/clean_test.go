package text

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain, with ünïcödé – and …": "plain, with ünïcödé – and …",
		"lines\n\tand tabs\n":         "lines\n\tand tabs\n",
		"\x1b]0;title\a\x1b[2J":       `\u001b]0;title\u0007\u001b[2J`,
		"over\rwritten\b\x7f\x00":     `over\u000dwritten\u0008\u007f\u0000`,
		"C1 \u009b2J":                 `C1 \u009b2J`,
		"half a C1 \x9b2J":            `half a C1 \x9b2J`,
		"bidi \u202egpj.exe\u2066":    `bidi \u202egpj.exe\u2066`,
		"lines \u2028 \u2029 \ufeff":  `lines \u2028 \u2029 \ufeff`,
		"tag \U000e0041":              `tag \udb40\udc41`,
		"cut \xe2\x80":                `cut \xe2\x80`,
		"replaced \ufffd":             "replaced \ufffd",
	} {
		if got := Clean(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestCleanLine(t *testing.T) {
	if got, want := CleanLine("a\nb\r\nc\td\re\x1b"), `a b c d e\u001b`; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// FuzzText verifies that Clean removes all control characters, does not change clean text, and preserves the meaning of
// JSON.
func FuzzText(f *testing.F) {
	f.Add("\x1b[2J\u202e\u009b\x9b\n\t\ufffd\U000e0041")
	f.Fuzz(func(t *testing.T, in string) {
		out := Clean(in)
		if !utf8.ValidString(out) || strings.ContainsFunc(out, func(r rune) bool {
			return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp))
		}) {
			t.Errorf("%q became %q", in, out)
		}
		if Clean(out) != out {
			t.Errorf("%q is not left alone", out)
		}
		if strings.Contains(CleanLine(in), "\n") {
			t.Errorf("%q has more than one line", in)
		}
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		var before, after string
		if json.Unmarshal(raw, &before) != nil || json.Unmarshal([]byte(Clean(string(raw))), &after) != nil ||
			before != after {
			t.Errorf("%q is %q in JSON", before, after)
		}
	})
}
