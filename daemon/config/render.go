package config

import (
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"edgeway/daemon/text"
	"edgeway/proxiers"
)

// Dump returns the whole configuration in TOML. Loading Dump's output returns the same configuration.
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

// CommentedDefault returns the text of etc/edgeway/edgeway.toml. The keys that most hosts need come first. Each key is
// commented out and has its default value. A comment above the key describes the meaning and the limits of the value.
// Each key includes its section's name, because a TOML file can define each table only once.
func CommentedDefault(backends []proxiers.Component) string {
	var b strings.Builder
	b.WriteString(header)
	fmt.Fprintf(&b, "version = %d\n", Version)
	sections := schema(defaultConfig(backends), backends)
	for _, name := range commonKeys {
		for _, s := range sections {
			s.writeKeys(&b, func(key string) bool { return key == name })
		}
	}
	b.WriteString("\n# Rarely needed:\n")
	for _, s := range sections {
		s.writeKeys(&b, func(key string) bool { return !slices.Contains(commonKeys, key) })
	}
	return b.String()
}

// commonKeys lists the keys that most hosts need, in the order in which an operator sets them.
var commonKeys = []string{
	"source.kube.kubeconfig",
	"source.file.paths",
	"checks.tcp.sources",
	"node.addresses",
	"proxy.backend",
	"proxy.service_cidrs",
	"proxy.nodeport_addresses",
	"metrics.address",
}

// writeKeys writes the description of each key for which wanted returns true, followed by the commented-out key. wanted
// receives the key's full name.
func (s section) writeKeys(b *strings.Builder, wanted func(key string) bool) {
	for _, k := range s.keys {
		if name := s.name + "." + k.name; wanted(name) {
			b.WriteString("\n")
			writeComment(b, k.describe())
			fmt.Fprintf(b, "#%s = %s\n", name, literal(k.value.get()))
		}
	}
}

const header = `# Edgeway's configuration. Each key is shown with its default.
# Set source.kube.kubeconfig or source.file.paths. Most hosts need no other key.
#
# Edgeway also reads the files conf.d/*.toml next to this file, in the order of their
# names. The last file that sets a key wins. A relative path is relative to the
# folder of the file that contains it.
#
# "edgeway config check" finds errors. "edgeway config dump" prints the configuration
# in force. edgeway.toml(5) is the manual.

`

func (k key) describe() string {
	if k.value.limits == "" {
		return k.doc
	}
	return k.doc + " Allowed: " + k.value.limits + "."
}

// writeComment writes doc as comment lines of at most 84 columns.
func writeComment(b *strings.Builder, doc string) {
	for _, line := range text.Wrap("", doc, 82, 0) {
		b.WriteString("# " + line + "\n")
	}
}

// literal formats the result of value.get as TOML.
func literal(v any) string {
	line, _ := toml.Marshal(map[string]any{"v": v}) // never fails for a string, an int64, a bool or a []string
	return strings.TrimSpace(strings.TrimPrefix(string(line), "v = "))
}
