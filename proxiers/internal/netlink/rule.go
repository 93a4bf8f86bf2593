package netlink

import "golang.org/x/sys/unix"

// Jumps returns the chains to which a rule jumps or goes. iptables-nft (1.8.9 and 1.8.13) writes its own targets as
// compat expressions, but writes jumps to chains in the same form as nft. whole is false if the message lacks the
// rule's expressions.
//
// On newer kernels, the notices of deleted chains, sets and tables contain little more than names. The notices of
// deleted rules keep their expressions, because "nft monitor" prints the expressions (6.1, 6.18 and 7.2).
func Jumps(rule []byte) (chains []string, whole bool) {
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
