package flowtable

import (
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/nfnetlink"
)

// familyNames has the families whose rules may see a forwarded packet, in nft's words.
var familyNames = map[uint8]string{unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet"}

// concerns names the table if a notice is about it. A notice about another program's rules has the table written anew. The monitor
// calls concerns with its lock held.
func (f *follower) concerns(m nfnetlink.Message) string {
	family, table := familyNames[m.Family], text(m, nfnetlink.AttrTable)
	if table == tableName && m.Family == unix.NFPROTO_INET {
		return "the table"
	}
	if forwards(m) && !proxiers.OwnTable(family, table) && !f.ownChain(family, table, m) {
		f.rulesChanged()
	}
	return ""
}

// forwards reports whether a notice may be about rules that forwarded packets meet. Tables without rules, counters and the like are
// not.
func forwards(m nfnetlink.Message) bool {
	if familyNames[m.Family] == "" {
		return false
	}
	switch m.Kind {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE, unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		return true
	}
	return false
}

// ownChain reports whether a notice is about a backend's chain in a table of other programs, or about a rule that leads there. If
// another program changes such a chain, the backend repairs it.
func (f *follower) ownChain(family, table string, m nfnetlink.Message) bool {
	i := slices.IndexFunc(f.opts.Shared, func(s proxiers.SharedTable) bool { return s.Family == family && s.Name == table })
	if i < 0 {
		return false
	}
	owns := f.opts.Shared[i].Owns
	switch m.Kind {
	case unix.NFT_MSG_NEWCHAIN:
		return owns(text(m, unix.NFTA_CHAIN_NAME))
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		chains, _ := nfnetlink.Jumps(m.Attrs)
		return owns(text(m, unix.NFTA_RULE_CHAIN)) || slices.ContainsFunc(chains, owns)
	}
	return false
}

func text(m nfnetlink.Message, attr uint16) string {
	return string(nfnetlink.Text(nfnetlink.Attr(m.Attrs, attr)))
}
