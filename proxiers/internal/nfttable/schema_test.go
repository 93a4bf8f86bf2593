package nfttable

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/knftables"

	"edgeway/proxiers"
	"edgeway/proxiers/plan"
	"edgeway/test/plantest"
)

// The constants are the SetIDs in the test schema, whose sets use every field and every kind of data.
const (
	frontends SetID = iota
	slots
	peers
	allowed
	hosts
	numbers
)

// testSchema returns a schema in which each ServicePort has a map and a chain, and shares another chain with all
// ServicePorts that have the same number of endpoints.
func testSchema() Schema {
	return Schema{
		Table: "nfttable-test", Numbers: numbers, IdleTimeout: time.Minute, Counters: []string{"misses"},
		Sets: []Set{
			frontends: {Name: "frontends", Key: []Field{Addr, Proto, Port}, Data: ToNumber, Named: true, LeadsToLookup: true},
			slots:     {Name: "slots", Key: []Field{Addr, Port, Slot}, Data: ToEndpoint, Proto: plan.TCP},
			peers:     {Name: "peers", Key: []Field{Proto, Peer, PeerPort}, Data: ToChain},
			allowed:   {Name: "allowed", Key: []Field{Port, PeerPrefix}},
			hosts:     {Name: "hosts", Key: []Field{Addr}},
			numbers:   {Name: "numbers", Key: []Field{Number}, Data: ToChain},
		},
		Ranges: []Range{{Name: "pods", Prefixes: func(n *plan.Node) []netip.Prefix { return n.PodSources }}},
		Chains: []Chain{
			{Name: "misses", Rules: []string{"$ip daddr @hosts counter name misses"}},
			{
				Name: "output", Type: knftables.FilterType, Hook: knftables.OutputHook, Priority: knftables.FilterPriority,
				Rules: []string{"meta mark and $mark != 0 meta mark set meta mark and $rest", "jump misses"},
			},
		},
		AddService: testNeeds,
		NodeEntries: func(n *plan.Node) (entries []Entry) {
			for _, a := range n.HostAddrs {
				entries = append(entries, Entry{Element: Element{Family: plan.FamilyOf(a), Set: hosts, Addr: a}})
			}
			return entries
		},
		SameRules: func(a, b *plan.Node) bool { return slices.Equal(a.PodInterfaces, b.PodInterfaces) },
	}
}

type ruleList []string

func (l ruleList) Rules(*plan.Node) []string { return l }

func testNeeds(n *Needs, svc *plan.ServicePort) {
	clients := "clients-" + svc.Name.Name
	n.AddObject(Object{ObjectID: ObjectID{svc.Family, MapObject, clients}, Size: 16, Timeout: time.Minute})
	note := Object{
		ObjectID: ObjectID{svc.Family, ChainObject, "note-" + svc.Name.Name},
		Rules:    ruleList{"update @" + clients + " { $ip saddr : $ip daddr }"},
	}
	n.AddObject(note)
	for _, f := range svc.Frontends {
		key := Element{Family: svc.Family, Addr: f.Addr, Proto: svc.Name.Protocol, Port: f.Port}
		number := n.AddChain(Object{
			ObjectID: ObjectID{svc.Family, ChainObject, "of-" + strconv.Itoa(len(svc.Pools[0]))}, Rules: ruleList{"accept"},
		})
		n.AddEntry(frontends, key, Value{Number: number})
		for _, p := range f.AllowFrom {
			n.AddEntry(allowed, Element{Family: svc.Family, Port: f.Port, Peer: p.Addr(), PeerBits: uint8(p.Bits())},
				Value{})
		}
		for i, e := range svc.Pools[0] {
			n.AddEntry(slots, Element{Family: svc.Family, Addr: f.Addr, Port: f.Port, Slot: uint32(i)},
				Value{Endpoint: e.Addr})
			n.AddEntry(peers, Element{
				Family: svc.Family, Proto: svc.Name.Protocol, Peer: e.Addr.Addr(),
				PeerPort: e.Addr.Port(),
			}, Value{Chain: note.Name})
		}
		n.AddShared(hosts, Element{Family: svc.Family, Addr: f.Addr})
	}
}

func testPlan() *plan.Plan {
	one := plantest.Service("one", []plan.Frontend{plantest.ClusterIP("10.96.0.1", 80)},
		plantest.Endpoint("10.244.1.1:8080"), plantest.Endpoint("10.244.1.2:8081"))
	one.Frontends[0].AllowFrom = []netip.Prefix{plantest.Prefix("10.0.0.0/8"), plantest.Prefix("192.0.2.7/32")}
	six := plantest.Service("six", []plan.Frontend{{
		Kind: plan.ClusterIP, Addr: plantest.Addr("fd00::1"), Port: 80,
		Routes: plantest.ClusterIPRoutes,
	}}, plantest.Endpoint("[fd00:1::1]:8080"))
	six.Family = plan.IPv6
	six.Frontends[0].AllowFrom = []netip.Prefix{plantest.Prefix("fd00:2::/61")}
	return plantest.Plan(plantest.Node(), one, six)
}

func testRenderer() *renderer {
	return newRenderer(testSchema(), []plan.Family{plan.IPv4, plan.IPv6}, 14)
}

// transactions returns the transactions for a change. chunk is the approximate number of elements in each transaction.
func transactions(t *testing.T, chunk int, change proxiers.Change) (texts []string) {
	t.Helper()
	r, refs := testRenderer(), newReferences()
	r.chunkSize = chunk
	b := newBatch(r, refs, time.Now())
	b.send = func(tx *knftables.Transaction) error {
		texts = append(texts, tx.String())
		return nil
	}
	var err error
	if change.Prev == nil {
		err = b.fillTables(change.Next, baseOptions{}, nil)
	} else {
		r.node = change.Prev.Node
		r.addReferences(refs, change.Prev)
		err = b.addDifference(change)
	}
	if err != nil {
		t.Fatal(err)
	}
	return texts
}

// Edgeway writes all ports of a Service in one chunk, because the rules reject packets to ClusterIP ports that Edgeway
// has not written yet.
func TestChunkKeepsServicesTogether(t *testing.T) {
	var list []*plan.ServicePort
	for i, name := range []string{"multi", "multi", "multi", "next"} {
		svc := plantest.Service(name, []plan.Frontend{plantest.ClusterIP("10.96.0.1", uint16(80+i))},
			plantest.Endpoint("10.244.1.1:8080"))
		svc.Name.Port = string(rune('a' + i))
		list = append(list, svc)
	}
	texts := transactions(t, 6, proxiers.NewChange(nil, plantest.Plan(plantest.Node(), list...)))
	if len(texts) != 2 || !strings.Contains(texts[0], "10.96.0.1 . tcp . 82") ||
		!strings.Contains(texts[1], "10.96.0.1 . tcp . 83") {
		t.Errorf("the first chunk does not end with the Service: %q", texts)
	}
}

// A sync's removals alone may fill more than one chunk.
func TestRemovalsExceedingChunk(t *testing.T) {
	gone, kept := longPool(10, 0), plantest.Service("kept", []plan.Frontend{plantest.ClusterIP("10.96.0.2", 80)},
		plantest.Endpoint("10.244.1.1:8080"))
	prev := plantest.Plan(plantest.Node(), gone, kept)
	next := plantest.WithEndpoints(plantest.Plan(plantest.Node(), kept), 0, plantest.Endpoint("10.244.1.2:8080"))
	texts := transactions(t, 15, proxiers.NewChange(prev, next))
	if len(texts) != 2 || strings.Contains(texts[0], "10.244.1.2") || !strings.Contains(texts[1], "10.244.1.2") {
		t.Errorf("the removals are not sent first: %q", texts)
	}
}

// If the numbers of two names collide, Edgeway assigns a different number to the second name. After a call to forget,
// an object's number is free again.
func TestNumbersAreDistinct(t *testing.T) {
	refs := newReferences()
	id := ObjectID{plan.IPv4, ChainObject, "a"}
	number := refs.number(id)
	refs.forget(id)
	refs.taken[familyNumber{plan.IPv4, number}] = true // another name has this number
	if got := refs.number(id); got != number+1 || refs.number(id) != got {
		t.Errorf("number %d, want %d and then the same", got, number+1)
	}
	if got := refs.number(ObjectID{plan.IPv6, ChainObject, "a"}); got != number {
		t.Errorf("number %d in the other family, want %d", got, number)
	}
}

// Edgeway does not delete an object that another ServicePort still needs, and does not rewrite an idle object.
func TestSharedObjectsAreCounted(t *testing.T) {
	env := proxiers.Env{Families: []plan.Family{plan.IPv4}}
	node := plantest.Node()
	a := plantest.Service("a", []plan.Frontend{plantest.ClusterIP("10.96.0.1", 80)},
		plantest.Endpoint("10.244.1.1:8080"))
	b := plantest.Service("b", []plan.Frontend{plantest.ClusterIP("10.96.0.1", 81)},
		plantest.Endpoint("10.244.1.2:8080"))
	both, one, none := plantest.Plan(node, a, b), plantest.Plan(node, a), plantest.Plan(node)
	for _, c := range []struct {
		name       string
		prev, next *plan.Plan
		want       bool
	}{
		{"the first", none, one, true},
		{"another one", one, both, false},
		{"not the last", both, one, false},
		{"the last", one, none, true},
	} {
		tx := Render(testSchema(), env, proxiers.NewChange(c.prev, c.next))
		for _, shared := range []string{"numbers { ", "hosts { 10.96.0.1 }"} {
			if got := strings.Contains(tx, "element ip nfttable-test "+shared); got != c.want {
				t.Errorf("%s: %q is written: %v, want %v:\n%s", c.name, shared, got, c.want, tx)
			}
		}
	}
}
