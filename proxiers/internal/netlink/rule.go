package netlink

import "golang.org/x/sys/unix"

// JumpTargets returns the target chains of a rule's jump and goto verdicts. iptables-nft (1.8.9 and 1.8.13) writes
// extensions as compat expressions, but writes jumps to chains in the same form as nft. whole is false if
// the message does not contain the rule's expressions.
//
// In notifications about deleted chains, sets and tables, the kernel may omit everything except names. Notifications
// about deleted rules contain the expressions, because "nft monitor" prints them (Linux 6.1, 6.18 and 7.2).
func JumpTargets(rule []byte) (chains []string, whole bool) {
	list := Attr(rule, unix.NFTA_RULE_EXPRESSIONS)
	for _, expression := range EachAttr(list) {
		if string(Text(Attr(expression, unix.NFTA_EXPR_NAME))) != "immediate" {
			continue
		}
		data := Attr(Attr(expression, unix.NFTA_EXPR_DATA), unix.NFTA_IMMEDIATE_DATA)
		if chain := Text(Attr(Attr(data, unix.NFTA_DATA_VERDICT), unix.NFTA_VERDICT_CHAIN)); len(chain) > 0 {
			chains = append(chains, string(chain))
		}
	}
	return chains, list != nil
}
