package flowtable

import (
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/nfnetlink"
)

// concerns says that a notice is about our table. One about rules of others has the table written anew. It is called with the
// monitor's lock held.
func (f *follower) concerns(m nfnetlink.Message) string {
	table := string(nfnetlink.Text(nfnetlink.Attr(m.Attrs, nfnetlink.AttrTable)))
	if table == tableName && m.Family == unix.NFPROTO_INET {
		return "the table"
	}
	if forwards(m) && !slices.Contains(f.opts.OwnTables, table) {
		f.rulesChanged()
	}
	return ""
}

// forwards says that a notice may be about rules that forwarded packets meet. Tables without any are none, nor are
// counters and the like.
func forwards(m nfnetlink.Message) bool {
	switch m.Family {
	case unix.NFPROTO_IPV4, unix.NFPROTO_IPV6, unix.NFPROTO_INET:
	default:
		return false
	}
	switch m.Kind {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE, unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		return true
	}
	return false
}
