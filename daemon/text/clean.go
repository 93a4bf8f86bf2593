// Package text makes untrusted text safe for a terminal, combines numbers with nouns, suggests corrections for
// misspelled words, and prints the commands' output.
package text

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Clean escapes characters that could control a terminal. Messages quote certificates, API server responses, manifests
// and program output. Control characters in a quotation could rewrite the screen.
//
// Clean replaces control characters (C0, DEL and C1, except newline and tab), format characters (such as text direction
// marks), and Unicode's line and paragraph separators with \uXXXX. JSON also uses the notation \uXXXX, so JSON text
// keeps its meaning. Clean replaces bytes that are not valid UTF-8 with \xXX. JSON text cannot contain invalid UTF-8.
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
			writeInvalid(&out, s[i:])
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			fmt.Fprintf(&out, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&out, `\u%04x`, r)
		}
	}
	return out.String()
}

// writeInvalid escapes the first byte of s if that byte is not valid UTF-8. Otherwise, s starts with an encoded
// replacement character, which writeInvalid writes unchanged.
func writeInvalid(out *strings.Builder, s string) {
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

// CleanLine returns the text as one clean line: newlines, carriage returns and tabs become spaces.
func CleanLine(s string) string { return Clean(breaks.Replace(s)) }

var breaks = strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\t", " ")

// CleanWriter returns a writer that cleans all text and writes it to w. A Write must not end in the middle of a UTF-8
// character.
func CleanWriter(w io.Writer) io.Writer { return writer{w} }

type writer struct{ inner io.Writer }

// Write implements io.Writer.
func (w writer) Write(p []byte) (int, error) {
	if _, err := io.WriteString(w.inner, Clean(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}
