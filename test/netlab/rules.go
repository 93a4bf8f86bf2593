package netlab

import "regexp"

// emptyTables are those of iptables-nft with nothing but empty built-in chains that accept. Like tables of
// iptables-legacy they come into being when a program looks, and their removal is left to other programs.
var emptyTables = regexp.MustCompile(`(?m)^(?:# Warning: table .* is managed by iptables-nft, do not touch!\n)?` +
	`table ip6? (?:raw|mangle|nat|filter|security) \{\n` +
	`(?:\tchain (?:PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING) \{\n\t\ttype \w+ hook \w+ priority [\w +-]+; policy accept;\n\t\}\n\n?)+\}\n?`)

// WithoutEmptyTables gives the output of "nft list ruleset" without them.
func WithoutEmptyTables(ruleset string) string { return emptyTables.ReplaceAllString(ruleset, "") }
