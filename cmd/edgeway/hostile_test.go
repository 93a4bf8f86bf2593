package main

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

const hostile = "\x1b[2J\u009b\x9b\u202e\a\r"

// No command may write control characters from untrusted text to the terminal.
func TestOutputHasNoControlCharacters(t *testing.T) {
	file := func(text string) string { return configFile(t, "version = 1\n"+text) }
	const toml = `\u001b[2J\u009b\u202e\r`
	shown := 0
	for name, args := range map[string][]string{
		"command":      {hostile},
		"flag":         {"status", "--" + hostile},
		"value":        {"status", "--json=" + hostile},
		"no socket":    {"status", "--config", file("control.socket = \"/nowhere/" + toml + "\"\nsource.file.paths = ['/m']")},
		"no file":      {"config", "check", "--config", "/nowhere/" + hostile},
		"syntax":       {"config", "check", "--config", file("a = " + hostile)},
		"unknown key":  {"config", "check", "--config", file("\"" + toml + "\" = 1")},
		"value of key": {"config", "check", "--config", file("proxy.backend = \"" + toml + "\"")},
		"list":         {"config", "check", "--config", file("node.addresses = [\"" + toml + "\"]")},
		"dump":         {"config", "dump", "--config", file("source.file.paths = [\"/" + toml + "\"]")},
		"dry run":      {"run", "--dry-run", "--config", file("source.kube.kubeconfig = \"/nowhere/" + toml + "\"")},
		"help":         {"help", hostile},
	} {
		_, stdout, stderr := run(t, args...)
		out := stdout + stderr
		if strings.Contains(out, "[2J") {
			shown++
		}
		if !utf8.ValidString(out) || strings.ContainsFunc(out, func(r rune) bool {
			return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r))
		}) {
			t.Errorf("%s: %q", name, out)
		}
	}
	if shown < 6 {
		t.Errorf("only %d commands printed something of the text", shown)
	}
}
