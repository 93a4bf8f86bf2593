package config

import (
	"fmt"
	"strconv"
	"strings"
)

// Dump prints the whole configuration as a file that Load reads back to the same value.
func Dump(c *Config) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version = %d\n", Version)
	for _, s := range schema(c, nil) {
		fmt.Fprintf(&b, "\n[%s]\n", s.name)
		for _, k := range s.keys {
			fmt.Fprintf(&b, "%s = %s\n", k.name, literal(k.value.get()))
		}
	}
	return b.String()
}

// CommentedDefault is the text of etc/edgeway/edgeway.toml: every key with its meaning, its limits and
// its default, the keys commented out.
func CommentedDefault(backends []Choice) string {
	var b strings.Builder
	b.WriteString(header)
	fmt.Fprintf(&b, "version = %d\n", Version)
	for _, s := range schema(defaultOf(backends), backends) {
		b.WriteString("\n")
		comment(&b, s.doc)
		fmt.Fprintf(&b, "[%s]\n", s.name)
		for _, k := range s.keys {
			b.WriteString("\n")
			comment(&b, k.describe())
			fmt.Fprintf(&b, "#%s = %s\n", k.name, literal(k.value.get()))
		}
	}
	return b.String()
}

const header = `# Edgeway's configuration. Every key is here, with its default behind the "#".
# Set source.kube.kubeconfig or source.file.paths; nothing else is needed.
#
# Files in conf.d/*.toml beside this one are read after it, in the order of their
# names; the last one that sets a key wins. Relative paths count from the folder of
# the file that they stand in.
#
# "edgeway config check" says what is wrong with it, "edgeway config dump" what is
# in force. edgeway.toml(5) is the manual.

`

// describe is the key's meaning and limits.
func (k key) describe() string {
	if k.value.limits == "" {
		return k.doc
	}
	return k.doc + " Allowed: " + k.value.limits + "."
}

// comment writes text as "# " lines of at most 84 columns.
func comment(b *strings.Builder, text string) {
	const width = 82
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len(line)+1+len(word) > width {
			b.WriteString("# " + line + "\n")
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	b.WriteString("# " + line + "\n")
}

// literal writes what value.get gives as TOML.
func literal(v any) string {
	switch v := v.(type) {
	case string:
		return quote(v)
	case []string:
		quoted := make([]string, len(v))
		for i, s := range v {
			quoted[i] = quote(s)
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case int64:
		return strconv.FormatInt(v, 10)
	case bool:
		return strconv.FormatBool(v)
	}
	panic(fmt.Sprintf("no TOML form of a %T", v))
}

// quote writes a TOML basic string. Go's quoting differs from it in control characters.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
