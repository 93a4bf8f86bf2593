package flowtable

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
)

// hasRelevantChange reports whether, since lastInspection, other programs have made a change that could cause the rules
// to drop an offloaded connection's packets. Most changes do not affect forwarded packets, so hasRelevantChange reads
// the rules in the changed tables from the kernel. For example, fail2ban adds elements to a set that only the input
// hook uses.
func (f *follower) hasRelevantChange() (bool, error) {
	f.mu.Lock()
	changed := f.foreignChanges
	f.foreignChanges = map[tableID]*tableChanges{}
	f.lastInspection = time.Now() // the next inspection must also wait for inspectionInterval
	f.mu.Unlock()
	for id, t := range changed {
		if t.wholeTable {
			return true, nil
		}
		reached := reachableObjects{conn: f.watcher.Conn, tableID: id, owns: f.ownsFunc(id)}
		if err := reached.visitChains(); err != nil {
			return true, fmt.Errorf("rules in the table %s %s: %w", familyNames[id.family], id.name, err)
		}
		for chain := range t.chains {
			if met, exists := reached.reached[chain]; met || !exists {
				return true, nil
			}
		}
		for set := range t.sets {
			if reached.sets[set] {
				return true, nil
			}
		}
	}
	return false, nil
}

// reachableObjects holds one nftables table's chains and sets that affect forwarded packets of established connections.
type reachableObjects struct {
	tableID
	conn *netlink.Conn
	owns func(chain string) bool
	// reached has an entry for each chain in the table. The value is true if forwarded packets of established
	// connections can traverse the chain, and no backend owns the chain.
	reached map[string]bool
	sets    map[string]bool
	// queue holds the reachable chains whose rules visitChains has not read yet. jumpsByMap is set if a rule looks up
	// its target in a map, so any chain may be a target.
	queue      []string
	jumpsByMap bool
}

// visitChains visits the reachable chains, starting from the base chains.
func (r *reachableObjects) visitChains() error {
	r.reached, r.sets = map[string]bool{}, map[string]bool{}
	table := netlink.AppendAttr(nil, netlink.AttrTable, r.name)
	err := r.conn.Dump(unix.NFT_MSG_GETCHAIN, r.family, table, func(m netlink.Message) error {
		if m.Family == r.family && text(m, netlink.AttrTable) == r.name {
			chain := text(m, unix.NFTA_CHAIN_NAME)
			r.reached[chain] = false
			if isOnForwardPath(m.Attrs) {
				r.enqueue(chain)
			}
		}
		return nil
	})
	for err == nil && len(r.queue) > 0 {
		chain := r.queue[0]
		r.queue = r.queue[1:]
		filter := netlink.AppendAttr(table, unix.NFTA_RULE_CHAIN, chain)
		err = r.conn.Dump(unix.NFT_MSG_GETRULE, r.family, filter, r.readRule)
		if r.jumpsByMap {
			for other := range r.reached {
				r.enqueue(other)
			}
		}
	}
	return err
}

// isOnForwardPath reports whether a chain is a base chain that forwarded packets of established connections traverse.
// The result is false for chains of type nat, because only a connection's first packet traverses them.
func isOnForwardPath(chain []byte) bool {
	hook := netlink.Attr(chain, unix.NFTA_CHAIN_HOOK)
	if hook == nil || string(netlink.Text(netlink.Attr(chain, unix.NFTA_CHAIN_TYPE))) == "nat" {
		return false
	}
	switch netlink.Uint32(netlink.Attr(hook, unix.NFTA_HOOK_HOOKNUM)) {
	case unix.NF_INET_LOCAL_IN, unix.NF_INET_LOCAL_OUT:
		return false
	}
	return true
}

// enqueue adds a chain to the queue, unless the chain belongs to a backend. A backend's rules never refer to another
// program's objects.
func (r *reachableObjects) enqueue(chain string) {
	if r.reached[chain] || r.owns != nil && r.owns(chain) {
		return
	}
	r.reached[chain] = true
	r.queue = append(r.queue, chain)
}

// readRule records the chains that a rule jumps to and the sets that the rule uses.
func (r *reachableObjects) readRule(m netlink.Message) error {
	if m.Family != r.family || text(m, netlink.AttrTable) != r.name || !r.reached[text(m, unix.NFTA_RULE_CHAIN)] {
		return nil // some kernels ignore the filter of the dump
	}
	chains, _ := netlink.JumpTargets(m.Attrs)
	for _, chain := range chains {
		r.enqueue(chain)
	}
	for _, expression := range netlink.EachAttr(netlink.Attr(m.Attrs, unix.NFTA_RULE_EXPRESSIONS)) {
		data := netlink.Attr(expression, unix.NFTA_EXPR_DATA)
		switch string(netlink.Text(netlink.Attr(expression, unix.NFTA_EXPR_NAME))) {
		case "lookup":
			r.uses(netlink.Attr(data, unix.NFTA_LOOKUP_SET))
			to := netlink.Attr(data, unix.NFTA_LOOKUP_DREG)
			r.jumpsByMap = r.jumpsByMap || to != nil && netlink.Uint32(to) == unix.NFT_REG_VERDICT
		case "dynset":
			r.uses(netlink.Attr(data, unix.NFTA_DYNSET_SET_NAME))
		case "objref":
			r.uses(netlink.Attr(data, unix.NFTA_OBJREF_SET_NAME))
		}
	}
	return nil
}

func (r *reachableObjects) uses(set []byte) { r.sets[string(netlink.Text(set))] = true }
