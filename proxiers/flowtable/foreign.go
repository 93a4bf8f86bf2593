package flowtable

import (
	"slices"

	"golang.org/x/sys/unix"

	"edgeway/proxiers"
	"edgeway/proxiers/internal/netlink"
)

// familyNames holds the nft name of each family whose rules may process forwarded packets.
var familyNames = map[uint8]string{unix.NFPROTO_IPV4: "ip", unix.NFPROTO_IPV6: "ip6", unix.NFPROTO_INET: "inet"}

type tableID struct {
	family uint8
	name   string
}

// tableChanges holds the changes that other programs have made to one nftables table.
type tableChanges struct {
	// wholeTable reports whether to treat every object in the nftables table as changed.
	wholeTable   bool
	chains, sets map[string]bool
}

// maxChanges is the maximum number of nftables tables for which the follower records the names of changed objects, and
// the maximum number of names per table. Beyond either maximum, the follower assumes that any object in the changed
// table may have changed.
const maxChanges = 100

// classify returns "the table" if a notification is about the follower's nftables table. For any other notification,
// classify returns "" and, if another program's change may affect forwarded packets, records the change. The watcher
// holds its lock while it calls classify.
func (f *follower) classify(m netlink.Message) string {
	family, table := familyNames[m.Family], text(m, netlink.AttrTable)
	if table == tableName && m.Family == unix.NFPROTO_INET {
		return "the table"
	}
	if mayAffectForwarding(m) && !proxiers.IsOwnTable(family, table) && !f.isOwnRule(m) {
		f.touch(m)
		f.scheduleInspection()
	}
	return ""
}

// mayAffectForwarding reports whether a notification may be about rules that forwarded packets traverse. For example,
// the result is false for a notification about a counter or a deleted table.
func mayAffectForwarding(m netlink.Message) bool {
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
	t := f.foreignChanges[id]
	if t == nil {
		t = &tableChanges{
			chains: map[string]bool{}, sets: map[string]bool{}, wholeTable: len(f.foreignChanges) >= maxChanges,
		}
		f.foreignChanges[id] = t
	}
	switch m.Kind {
	case unix.NFT_MSG_NEWCHAIN:
		t.chains[text(m, unix.NFTA_CHAIN_NAME)] = true
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		t.chains[text(m, unix.NFTA_RULE_CHAIN)] = true
	case unix.NFT_MSG_NEWSETELEM, unix.NFT_MSG_DELSETELEM:
		t.sets[text(m, unix.NFTA_SET_ELEM_LIST_SET)] = true
	default:
		t.wholeTable = true
	}
	if t.wholeTable || len(t.chains)+len(t.sets) > maxChanges {
		t.wholeTable = true
		clear(t.chains)
		clear(t.sets)
	}
}

// ownsFunc returns the function that recognizes the backend's chains in an nftables table, or nil if the backend does
// not share the table.
func (f *follower) ownsFunc(id tableID) func(chain string) bool {
	for _, s := range f.shared {
		if s.Family == familyNames[id.family] && s.Name == id.name {
			return s.Owns
		}
	}
	return nil
}

// isOwnRule reports whether a notification is about a backend's chain in a shared nftables table, or about a rule that
// jumps to such a chain. If another program changes the backend's chains or the jumps to them, the backend detects and
// repairs the damage.
func (f *follower) isOwnRule(m netlink.Message) bool {
	owns := f.ownsFunc(tableID{m.Family, text(m, netlink.AttrTable)})
	if owns == nil {
		return false
	}
	switch m.Kind {
	case unix.NFT_MSG_NEWCHAIN:
		return owns(text(m, unix.NFTA_CHAIN_NAME))
	case unix.NFT_MSG_NEWRULE, unix.NFT_MSG_DELRULE:
		chains, _ := netlink.JumpTargets(m.Attrs)
		return owns(text(m, unix.NFTA_RULE_CHAIN)) || slices.ContainsFunc(chains, owns)
	}
	return false
}

func text(m netlink.Message, attr uint16) string {
	return string(netlink.Text(netlink.Attr(m.Attrs, attr)))
}
