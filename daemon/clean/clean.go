// Package clean keeps a terminal from doing what foreign text says. Certificates, answers of an API server, manifests
// and the output of programs have their way into messages; with control characters such a message could rewrite the
// screen, or look as if it said something else.
//
// Control characters (C0, DEL, C1), format characters (those that change the direction of text among them), and the
// line and paragraph separators of Unicode are written as \uXXXX, as in JSON: so JSON stays JSON with the same
// meaning. Bytes that are not UTF-8, which JSON does not have, are written as \xXX.
package clean

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Text escapes all but newlines and tabs.
func Text(s string) string {
	if !strings.ContainsFunc(s, suspect) {
		return s
	}
	var out strings.Builder
	for i, r := range s {
		switch {
		case !suspect(r):
			out.WriteRune(r)
		case r == utf8.RuneError:
			invalid(&out, s[i:])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// invalid writes the replacement character, or the byte that is in the place of one.
func invalid(out *strings.Builder, s string) {
	if _, size := utf8.DecodeRuneInString(s); size == 1 {
		fmt.Fprintf(out, `\x%02x`, s[0])
	} else {
		out.WriteRune(utf8.RuneError)
	}
}

func suspect(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r < utf8.RuneSelf:
		return r < ' ' || r == 0x7f
	}
	return r == utf8.RuneError || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp)
}

// Line is Text for what must not have more than one line: newlines, returns and tabs become spaces.
func Line(s string) string { return Text(breaks.Replace(s)) }

var breaks = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\t", " ")

// Writer gives a writer of Text. Each Write must end with a whole character.
func Writer(w io.Writer) io.Writer { return writer{w} }

type writer struct{ inner io.Writer }

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.inner, Text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
