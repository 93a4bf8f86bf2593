// Package text formats text for people: foreign text so that it is safe for a terminal, numbers with their nouns,
// proposals for misspelt words, and the screens of the commands.
package text

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Clean escapes what could make a terminal do something: certificates, answers of an API server, manifests and the
// output of programs become parts of messages, and with control characters such a message could rewrite the screen.
//
// Control characters (C0, DEL, C1) except newline and tab, format characters (such as those that change the direction
// of text), and the line and paragraph separators of Unicode become \uXXXX, as in JSON: so JSON stays JSON with the
// same meaning. Bytes that are not UTF-8, which JSON does not have, become \xXX.
func Clean(s string) string {
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

// CleanLine returns one line of clean text: newlines, returns and tabs become spaces.
func CleanLine(s string) string { return Clean(breaks.Replace(s)) }

var breaks = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\t", " ")

// CleanWriter returns a writer that cleans text on its way to w. Each Write must end with a whole character.
func CleanWriter(w io.Writer) io.Writer { return writer{w} }

type writer struct{ inner io.Writer }

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.inner, Clean(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
