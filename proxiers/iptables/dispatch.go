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

// Up to leafSize frontends are a list in one chain, as kube-proxy has them. More are spread over
// sixteen chains by four bits of the address, the lowest first, as ClusterIPs are allocated in
// sequence; and so on. A packet that is no Service's passes some 70 rules at 10,000 Services, not 10,000,
// and a new Service rewrites one small chain. NodePorts are spread by protocol and the port's high byte
// first.
const (
	leafSize = 64
	// maxDepth keeps names of chains below the 29 bytes that iptables allows.
	maxDepth = 4
)

// place is where a frontend is found: an address, or a port of every NodePort address.
type place struct {
	addr  netip.Addr // invalid for NodePorts
	proto plan.Protocol
	// port 0 stands for the whole address.
	port uint16
}

// compare puts the ports of an address before the address itself.
func (p place) compare(o place) int {
	return cmp.Or(p.addr.Compare(o.addr), cmp.Compare(p.port-1, o.port-1), cmp.Compare(p.proto, o.proto))
}

// branch is the number of the child that the place belongs to, below a node of that depth.
func (p place) branch(depth int) int {
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

// match is what leads from a node of that depth to the child of the place.
func (p place) match(depth int) string {
	if !p.addr.IsValid() {
		width := 8 - 4*min(depth, 2)
		first := p.port >> width << width
		return fmt.Sprintf("%s:%d", port(p.proto, first), first+(1<<width-1))
	}
	raw, mask := make([]byte, p.addr.BitLen()/8), make([]byte, p.addr.BitLen()/8)
	at, shift := len(raw)-1-depth/2, depth%2*4
	raw[at], mask[at] = byte(p.branch(depth)<<shift), 15<<shift
	a, _ := netip.AddrFromSlice(raw)
	m, _ := netip.AddrFromSlice(mask)
	return fmt.Sprintf("-d %s/%s", a, m)
}

// tree is a chain, and those below it, that lead packets to the chains of Services. Its shape is
// a function of what is in it, not of how that came to be.
type tree struct {
	table, root string
	// head and tail are rules of the root chain around those that the tree makes.
	head, tail []string
	nodes      map[string]*node
	// dirty are the names of chains that may differ from the kernel's.
	dirty map[string]bool
}

// node is one chain of the tree: a leaf has items, an inner node has children.
type node struct {
	name  string
	depth int
	items map[place]*item
	kids  map[int]*node
	// sample is any place below the node: all have the same bits up to its depth.
	sample place
	size   int
}

// item is the rules of one place. More than one ServicePort may want the same ones.
type item struct {
	rules []string
	users int
}

func newTree(table, root string) *tree {
	t := &tree{table: table, root: root, nodes: map[string]*node{}, dirty: map[string]bool{}}
	t.newNode(root, 0, place{})
	return t
}

func (t *tree) newNode(name string, depth int, sample place) *node {
	n := &node{name: name, depth: depth, sample: sample, items: map[place]*item{}}
	t.nodes[name] = n
	t.dirty[name] = true
	return n
}

// surround replaces the rules around the tree's own.
func (t *tree) surround(head, tail []string) {
	if !slices.Equal(head, t.head) || !slices.Equal(tail, t.tail) {
		t.head, t.tail, t.dirty[t.root] = head, tail, true
	}
}

// add puts rules at a place. Rules that are there already must be the same.
func (t *tree) add(p place, rules []string) {
	path := t.path(p, true)
	leaf := path[len(path)-1]
	if it := leaf.items[p]; it != nil {
		it.users++
		return
	}
	leaf.items[p] = &item{rules: rules, users: 1}
	t.dirty[leaf.name] = true
	for _, n := range path {
		n.size++
	}
	if leaf.size > leafSize {
		t.reshape(leaf)
	}
}

// remove takes back one add.
func (t *tree) remove(p place) {
	path := t.path(p, false)
	leaf := path[len(path)-1]
	it := leaf.items[p]
	if it == nil {
		return
	}
	if it.users--; it.users > 0 {
		return
	}
	delete(leaf.items, p)
	t.dirty[leaf.name] = true
	for _, n := range path {
		n.size--
	}
	for i, n := range path[:len(path)-1] {
		kid := path[i+1]
		switch {
		case n.size <= leafSize:
			t.reshape(n)
			return
		case kid.size == 0:
			delete(n.kids, p.branch(n.depth))
			t.drop(kid)
			t.dirty[n.name] = true
			return
		}
	}
}

// path leads from the root to the leaf of a place; with make, to a new leaf where there is none.
func (t *tree) path(p place, create bool) []*node {
	n := t.nodes[t.root]
	path := []*node{n}
	for n.kids != nil {
		b := p.branch(n.depth)
		kid := n.kids[b]
		if kid == nil {
			if !create {
				break
			}
			kid = t.newKid(n, b, p)
			t.dirty[n.name] = true
		}
		n = kid
		path = append(path, n)
	}
	return path
}

func (t *tree) newKid(n *node, branch int, sample place) *node {
	separator := ""
	if n.depth == 0 {
		separator = "-"
	}
	kid := t.newNode(fmt.Sprintf("%s%s%x", n.name, separator, branch), n.depth+1, sample)
	n.kids[branch] = kid
	return kid
}

// reshape makes a node a leaf or an inner node, by its size.
func (t *tree) reshape(n *node) {
	items := n.items
	if n.kids != nil {
		items = map[place]*item{}
		t.collect(n.kids, items)
	}
	n.items, n.kids = items, nil
	t.dirty[n.name] = true
	if n.size <= leafSize || n.depth == maxDepth || n.depth == 3 && !n.sample.addr.IsValid() {
		return
	}
	n.items, n.kids = nil, map[int]*node{}
	for p, it := range items {
		b := p.branch(n.depth)
		if n.kids[b] == nil {
			t.newKid(n, b, p)
		}
		n.kids[b].items[p] = it
		n.kids[b].size++
	}
	for _, kid := range n.kids {
		t.reshape(kid)
	}
}

// collect takes down nodes and all that is below them.
func (t *tree) collect(kids map[int]*node, items map[place]*item) {
	for _, kid := range kids {
		maps.Copy(items, kid.items)
		t.collect(kid.kids, items)
		t.drop(kid)
	}
}

func (t *tree) drop(n *node) {
	delete(t.nodes, n.name)
	t.dirty[n.name] = true
}

// flush gives the chains to write and those that are gone since the last flush, sorted by name.
func (t *tree) flush() (write []xtables.Chain, gone []xtables.ChainID) {
	for _, name := range slices.Sorted(maps.Keys(t.dirty)) {
		id := xtables.ChainID{Table: t.table, Name: name}
		if n := t.nodes[name]; n != nil {
			write = append(write, xtables.Chain{ChainID: id, Rules: t.rules(n)})
		} else {
			gone = append(gone, id)
		}
	}
	clear(t.dirty)
	return write, gone
}

func (t *tree) rules(n *node) []string {
	var rules []string
	if n.name == t.root {
		rules = append(rules, t.head...)
	}
	for _, b := range slices.Sorted(maps.Keys(n.kids)) {
		kid := n.kids[b]
		rules = append(rules, rule(kid.sample.match(n.depth), jump(kid.name)))
	}
	for _, p := range slices.SortedFunc(maps.Keys(n.items), place.compare) {
		rules = append(rules, n.items[p].rules...)
	}
	if n.name == t.root {
		rules = append(rules, t.tail...)
	}
	return rules
}
