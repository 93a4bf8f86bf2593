package flowtable

import (
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
)

// familyNames lists the families whose rules may process a forwarded packet, with their nft names.
var familyNames = map[uint8]string{unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet"}

type tableID struct {
	family uint8
	name   string
}

// touched holds the changes that other programs have made to a table.
type touched struct {
	// all is set if any object in the table may have changed.
	all          bool
	chains, sets map[string]bool
}

// maxTouched limits the number of recorded tables, and the number of recorded names in each table.
const maxTouched = 100

// concerns returns "the table" if a notification is about the follower's table. For any other table, classify returns
// "" and records a relevant change. The watcher holds its lock while it calls classify.
func (f *follower) concerns(m netlink.Message) string {
	family, table := familyNames[m.Family], text(m, netlink.AttrTable)
	if table == tableName && m.Family == unix.NFPROTO_INET {
		return "the table"
	}
	if forwards(m) && !proxiers.OwnTable(family, table) && !f.ownRule(m) {
		f.touch(m)
		f.soon()
	}
	return ""
}

// forwards reports whether a notification may be about rules that forwarded packets traverse. The result is
// false for notifications about empty tables, counters and similar objects.
func forwards(m netlink.Message) bool {
	if familyNames[m.Family] == "" {
		return false
	}
	switch m.Kind {
	case unix.NFT_MSG_NEWTABLE, unix.NFT_MSG_NEWCHAIN, unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE,
		unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		return true
	}
	return false
}

func (f *follower) touch(m netlink.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	id := tableID{m.Family, text(m, netlink.AttrTable)}
	t := f.touched[id]
	if t == nil {
		t = &touched{chains: map[string]bool{}, sets: map[string]bool{}, all: len(f.touched) >= maxTouched}
		f.touched[id] = t
	}
	switch m.Kind {
	case unix.NFT_MSG_NEWCHAIN:
		t.chains[text(m, unix.NFTA_CHAIN_NAME)] = true
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		t.chains[text(m, unix.NFTA_RULE_CHAIN)] = true
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		t.sets[text(m, unix.NFTA_SET_ELEM_LIST_SET)] = true
	default:
		t.all = true
	}
	if t.all || len(t.chains)+len(t.sets) > maxTouched {
		t.all = true
		clear(t.chains)
		clear(t.sets)
	}
}

// owns returns the function that recognizes the backend's chains in a table, or nil if the table is not shared.
func (f *follower) owns(id tableID) func(chain string) bool {
	for _, s := range f.shared {
		if s.Family == familyNames[id.family] && s.Name == id.name {
			return s.Owns
		}
	}
	return nil
}

// ownRule reports whether a notification is about the backend's chain in a shared table, or about a rule that jumps
// to it. If another program changes the backend's chains or the jumps to them, the backend detects and repairs the
// damage.
func (f *follower) ownRule(m netlink.Message) bool {
	owns := f.owns(tableID{m.Family, text(m, netlink.AttrTable)})
	if owns == nil {
		return false
	}
	switch m.Kind {
	case unix.NFT_MSG_NEWCHAIN:
		return owns(text(m, unix.NFTA_CHAIN_NAME))
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		chains, _ := netlink.Jumps(m.Attrs)
		return owns(text(m, unix.NFTA_RULE_CHAIN)) || slices.ContainsFunc(chains, owns)
	}
	return false
}

func text(m netlink.Message, attr uint16) string {
	return string(netlink.Text(netlink.Attr(m.Attrs, attr)))
}
