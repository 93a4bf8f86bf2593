package iptables

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"edgeway/proxiers/iptables/xtables"
	"edgeway/proxiers/plan"
)

// If there are at most leafSize frontends, one chain contains the rules for all of them, as in kube-proxy. The backend
// distributes a larger number of frontends among sixteen chains by four bits of the address, and splits each of those
// chains in the same way if necessary. The lowest bits of the address come first, because clusters allocate ClusterIPs
// in sequence. With 10,000 Services, a packet that belongs to no Service traverses about 70 rules instead of 10,000,
// and a new Service changes only one small chain. The backend first splits NodePorts by protocol and by the high byte
// of the port.
const (
	leafSize = 64
	// maxDepth is the maximum depth of a tree. A deeper tree would need chain names longer than the 29 bytes that
	// iptables allows.
	maxDepth = 4
)

// dest is the destination of packets to a frontend: an address and port, or a port on all addresses that accept
// NodePorts.
type dest struct {
	addr  netip.Addr // invalid for NodePorts
	proto plan.Protocol
	// port is 0 if the destination covers all ports of the address.
	port uint16
}

// compare orders the ports of an address before the address itself.
func (p dest) compare(o dest) int {
	return cmp.Or(p.addr.Compare(o.addr), cmp.Compare(p.port-1, o.port-1), cmp.Compare(p.proto, o.proto))
}

// childNumber returns the number of the child that contains the destination, for a parent node at the given depth.
func (p dest) childNumber(depth int) int {
	if !p.addr.IsValid() {
		switch depth {
		case 0:
			return int(p.proto)<<8 | int(p.port>>8)
		case 1:
			return int(p.port >> 4 & 15)
		}
		return int(p.port & 15)
	}
	raw := p.addr.AsSlice()
	return int(raw[len(raw)-1-depth/2]>>(depth%2*4)) & 15
}

// match returns the match for the rule that jumps from a node at the given depth to the child that contains the
// destination.
func (p dest) match(depth int) string {
	if !p.addr.IsValid() {
		width := 8 - 4*min(depth, 2)
		first := p.port >> width << width
		return fmt.Sprintf("%s:%d", matchPort(p.proto, first), first+(1<<width-1))
	}
	raw, mask := make([]byte, p.addr.BitLen()/8), make([]byte, p.addr.BitLen()/8)
	at, shift := len(raw)-1-depth/2, depth%2*4
	raw[at], mask[at] = byte(p.childNumber(depth)<<shift), 15<<shift
	a, _ := netip.AddrFromSlice(raw)
	m, _ := netip.AddrFromSlice(mask)
	return fmt.Sprintf("-d %s/%s", a, m)
}

// tree is a chain with its subchains. The rules in a tree jump to the ServicePorts' chains. A tree's structure depends
// only on its contents, not on the order of changes.
type tree struct {
	table string
	root  *node
	// In the root chain, the rules in head precede the destinations' rules, and the rules in tail follow them.
	head, tail []string
	// dirtyChains holds, by name, the chains that may differ from the kernel's chains. The node for a removed chain is
	// nil.
	dirtyChains map[string]*node
}

// node is one chain in the tree. A leaf has items, and an inner node has children.
type node struct {
	name     string
	depth    int
	items    map[dest]*item
	children map[int]*node
	// sample is one of the destinations below the node. All destinations below a node have the same bits up to the
	// node's depth.
	sample dest
	size   int
}

// item holds the rules for one destination. Several ServicePorts may need the same rules.
type item struct {
	rules []string
	users int
}

func newTree(table, root string) *tree {
	t := &tree{table: table, dirtyChains: map[string]*node{}}
	t.root = t.newNode(root, 0, dest{})
	return t
}

func (t *tree) newNode(name string, depth int, sample dest) *node {
	n := &node{name: name, depth: depth, sample: sample, items: map[dest]*item{}}
	t.dirtyChains[name] = n
	return n
}

func (t *tree) surround(head, tail []string) {
	if !slices.Equal(head, t.head) || !slices.Equal(tail, t.tail) {
		t.head, t.tail, t.dirtyChains[t.root.name] = head, tail, t.root
	}
}

// add adds rules for a destination. If the destination already has rules, the new rules must be the same.
func (t *tree) add(p dest, rules []string) { t.addBelow(t.root, p, rules) }

func (t *tree) addBelow(n *node, p dest, rules []string) (grown bool) {
	switch kid, it := n.children[p.childNumber(n.depth)], n.items[p]; {
	case n.children != nil:
		if kid == nil {
			kid = t.addChild(n, p)
		}
		if !t.addBelow(kid, p, rules) {
			return false
		}
		n.size++
	case it != nil:
		it.users++
		return false
	default:
		n.items[p] = &item{rules: rules, users: 1}
		n.size++
		t.reshape(n)
	}
	return true
}

// remove reverses one call to add.
func (t *tree) remove(p dest) { t.removeBelow(t.root, p) }

func (t *tree) removeBelow(n *node, p dest) (shrunk bool) {
	if n.children == nil {
		it := n.items[p]
		if it == nil {
			return false
		}
		if it.users--; it.users > 0 {
			return false
		}
		delete(n.items, p)
	} else {
		kid := n.children[p.childNumber(n.depth)]
		if kid == nil || !t.removeBelow(kid, p) {
			return false
		}
		if kid.size == 0 {
			delete(n.children, p.childNumber(n.depth))
			t.dirtyChains[kid.name], t.dirtyChains[n.name] = nil, n
		}
	}
	if n.size--; n.children == nil || n.size <= leafSize {
		t.reshape(n)
	}
	return true
}

// addChild adds a child to a node. The child contains the destinations that have the same child number as sample.
func (t *tree) addChild(n *node, sample dest) *node {
	separator, branch := "", sample.childNumber(n.depth)
	if n.depth == 0 {
		separator = "-"
	}
	kid := t.newNode(fmt.Sprintf("%s%s%x", n.name, separator, branch), n.depth+1, sample)
	n.children[branch] = kid
	t.dirtyChains[n.name] = n
	return kid
}

// reshape turns a node into a leaf or an inner node, depending on the number of items below the node.
func (t *tree) reshape(n *node) {
	items := n.items
	if n.children != nil {
		items = map[dest]*item{}
		t.collect(n.children, items)
	}
	n.items, n.children = items, nil
	t.dirtyChains[n.name] = n
	if n.size <= leafSize || n.depth == maxDepth || n.depth == 3 && !n.sample.addr.IsValid() {
		return
	}
	n.items, n.children = nil, map[int]*node{}
	for p, it := range items {
		kid := n.children[p.childNumber(n.depth)]
		if kid == nil {
			kid = t.addChild(n, p)
		}
		kid.items[p] = it
		kid.size++
	}
	for _, kid := range n.children {
		t.reshape(kid)
	}
}

// collect removes nodes and all their descendants, and moves their items to the items map.
func (t *tree) collect(kids map[int]*node, items map[dest]*item) {
	for _, kid := range kids {
		maps.Copy(items, kid.items)
		t.collect(kid.children, items)
		t.dirtyChains[kid.name] = nil
	}
}

// flush returns the chains that have changed or become unnecessary since the last flush, sorted by name.
func (t *tree) flush() (write []xtables.Chain, gone []xtables.ChainID) {
	for _, name := range slices.Sorted(maps.Keys(t.dirtyChains)) {
		id := xtables.ChainID{Table: t.table, Name: name}
		if n := t.dirtyChains[name]; n != nil {
			write = append(write, xtables.Chain{ChainID: id, Rules: t.rules(n)})
		} else {
			gone = append(gone, id)
		}
	}
	clear(t.dirtyChains)
	return write, gone
}

func (t *tree) rules(n *node) []string {
	var rules []string
	if n == t.root {
		rules = append(rules, t.head...)
	}
	for _, b := range slices.Sorted(maps.Keys(n.children)) {
		kid := n.children[b]
		rules = append(rules, rule(kid.sample.match(n.depth), jump(kid.name)))
	}
	for _, p := range slices.SortedFunc(maps.Keys(n.items), dest.compare) {
		rules = append(rules, n.items[p].rules...)
	}
	if n == t.root {
		rules = append(rules, t.tail...)
	}
	return rules
}
