package netlab

import "regexp"

// emptyTables matches iptables-nft tables that contain only empty built-in chains with the policy accept. Like
// iptables-legacy, iptables-nft creates empty tables when a program lists rules, and does not remove them.
var emptyTables = regexp.MustCompile(`(?m)^(?:# Warning: table .* is managed by iptables-nft, do not touch!\n)?` +
	`table ip6? (?:raw|mangle|nat|filter|security) \{\n` +
	`(?:\tchain (?:PREROUTING|INPUT|FORWARD|OUTPUT|POSTROUTING) \{\n\t\ttype \w+ hook \w+ priority [\w +-]+; policy accept;\n\t\}\n\n?)+\}\n?`)

// WithoutEmptyTables returns the output of "nft list ruleset" without the empty tables that iptables-nft created.
func WithoutEmptyTables(ruleset string) string { return emptyTables.ReplaceAllString(ruleset, "") }
