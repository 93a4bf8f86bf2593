package flowtable

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"edgeway/proxiers/internal/netlink"
)

// relevant reports whether, since the table was last written, other programs have made a change that could
// drop a connection in the flowtable. hasRelevantChange reads the rules in the changed tables from the kernel, because
// most changes do not affect forwarded packets. For example, fail2ban adds elements to a set that only the input hook
// uses.
func (f *follower) relevant() (bool, error) {
	f.mu.Lock()
	changed := f.touched
	f.touched = map[tableID]*touched{}
	f.written = time.Now() // the next check must also wait for checkInterval
	f.mu.Unlock()
	for id, t := range changed {
		if t.all {
			return true, nil
		}
		reached := reach{conn: f.watcher.Conn, tableID: id, owns: f.owns(id)}
		if err := reached.read(); err != nil {
			return true, fmt.Errorf("rules in the table %s %s: %w", familyNames[id.family], id.name, err)
		}
		for chain := range t.chains {
			if met, exists := reached.met[chain]; met || !exists {
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

// reach holds the chains and sets in a table that affect forwarded packets of established connections.
type reach struct {
	tableID
	conn *netlink.Conn
	owns func(chain string) bool
	// met holds the chains that forwarded packets of established connections may reach.
	met  map[string]bool
	sets map[string]bool
	// next holds the chains with rules still to be read. byMap is set if a rule looks up its target in a map, in
	// which case any chain may be the target.
	next  []string
	byMap bool
}

// read visits the chains, starting from the base chains.
func (r *reach) read() error {
	r.met, r.sets = map[string]bool{}, map[string]bool{}
	table := netlink.AppendAttr(nil, netlink.AttrTable, r.name)
	err := r.conn.Dump(unix.NFT_MSG_GETCHAIN, r.family, table, func(m netlink.Message) error {
		if m.Family == r.family && text(m, netlink.AttrTable) == r.name {
			chain := text(m, unix.NFTA_CHAIN_NAME)
			r.met[chain] = false
			if hooked(m.Attrs) {
				r.meet(chain)
			}
		}
		return nil
	})
	for err == nil && len(r.next) > 0 {
		chain := r.next[0]
		r.next = r.next[1:]
		filter := netlink.AppendAttr(table, unix.NFTA_RULE_CHAIN, chain)
		err = r.conn.Dump(unix.NFT_MSG_GETRULE, r.family, filter, r.rule)
		if r.byMap {
			for other := range r.met {
				r.meet(other)
			}
		}
	}
	return err
}

// hooked reports whether a chain is a base chain that forwarded packets of established connections traverse. The result
// is false for chains of type nat, which only a connection's first packet traverses.
func hooked(chain []byte) bool {
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

// meet adds a chain to the queue, except a backend's chain, whose rules use no other program's objects.
func (r *reach) meet(chain string) {
	if r.met[chain] || r.owns != nil && r.owns(chain) {
		return
	}
	r.met[chain] = true
	r.next = append(r.next, chain)
}

// rule records the chains that a rule jumps to and the sets that it uses.
func (r *reach) rule(m netlink.Message) error {
	if m.Family != r.family || text(m, netlink.AttrTable) != r.name || !r.met[text(m, unix.NFTA_RULE_CHAIN)] {
		return nil // some kernels ignore the filter of the dump
	}
	chains, _ := netlink.Jumps(m.Attrs)
	for _, chain := range chains {
		r.meet(chain)
	}
	for _, expression := range netlink.EachAttr(netlink.Attr(m.Attrs, unix.NFTA_RULE_EXPRESSIONS)) {
		data := netlink.Attr(expression, unix.NFTA_EXPR_DATA)
		switch string(netlink.Text(netlink.Attr(expression, unix.NFTA_EXPR_NAME))) {
		case "lookup":
			r.uses(netlink.Attr(data, unix.NFTA_LOOKUP_SET))
			to := netlink.Attr(data, unix.NFTA_LOOKUP_DREG)
			r.byMap = r.byMap || to != nil && netlink.Uint32(to) == unix.NFT_REG_VERDICT
		case "dynset":
			r.uses(netlink.Attr(data, unix.NFTA_DYNSET_SET_NAME))
		case "objref":
			r.uses(netlink.Attr(data, unix.NFTA_OBJREF_SET_NAME))
		}
	}
	return nil
}

func (r *reach) uses(set []byte) { r.sets[string(netlink.Text(set))] = true }
