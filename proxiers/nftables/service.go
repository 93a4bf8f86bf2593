package nftables

import (
	"net/netip"
	"slices"
	"time"

	"edgeway/proxiers/plan"
)

// objectKind tells the objects apart that come and go with Services.
type objectKind uint8

const (
	chainObject objectKind = iota
	mapObject
	setObject
)

// objectID identifies a chain or map.
type objectID struct {
	family plan.Family
	kind   objectKind
	name   string
}

// object is a chain or map that a ServicePort needs.
type object struct {
	objectID
	// class gives the rules of a class chain; nil otherwise.
	class *class
	// noted are the maps that a learn chain fills.
	noted []string
	// timeout is a map's.
	timeout time.Duration
}

// footprint is all that a ServicePort needs in its table. It is reused from one ServicePort to the next.
type footprint struct {
	ledger *ledger
	// entries belong to this ServicePort alone.
	entries []entry
	// shared may be needed by other ServicePorts too: ClusterIPs and hairpins.
	shared []element
	// objects may be shared too. Maps come before the chains that use them.
	objects []object
}

// describe fills the footprint of svc; nil needs nothing.
func (fp *footprint) describe(svc *plan.ServicePort) {
	fp.entries, fp.shared, fp.objects = fp.entries[:0], fp.shared[:0], fp.objects[:0]
	if svc == nil {
		return
	}
	aff := affinityOf(svc)
	if aff != nil {
		fp.addMaps(svc, aff)
	}
	for i := range svc.Frontends {
		fp.addFrontend(svc, &svc.Frontends[i], aff)
	}
	for _, list := range svc.Pools {
		for _, e := range list {
			if e.Local {
				fp.shared = append(fp.shared, element{
					family: svc.Family, set: hairpin, proto: svc.Name.Protocol,
					peer: e.Addr.Addr(), addr: e.Addr.Addr(), port: e.Addr.Port(),
				})
			}
		}
	}
}

// addMaps adds the maps of clients and the chains that fill them.
func (fp *footprint) addMaps(svc *plan.ServicePort, aff *affinity) {
	for pool, ports := range aff.ports {
		for _, port := range ports {
			fp.objects = append(fp.objects, object{
				objectID: objectID{svc.Family, mapObject, aff.mapName(plan.Pool(pool), port)},
				timeout:  aff.timeout,
			})
		}
	}
	maps := len(fp.objects)
	for _, list := range svc.Pools {
		for _, e := range list {
			name, noted := aff.lesson(svc, e)
			if !slices.ContainsFunc(fp.objects[maps:], func(o object) bool { return o.name == name }) {
				fp.objects = append(fp.objects, object{objectID: objectID{svc.Family, chainObject, name}, noted: noted})
			}
		}
	}
}

// addFrontend adds what one frontend needs: its dispatch, source ranges and slots.
func (fp *footprint) addFrontend(svc *plan.ServicePort, f *plan.Frontend, aff *affinity) {
	c := classOf(svc, f, aff)
	fp.addClass(&c)
	key := element{family: svc.Family, proto: svc.Name.Protocol, port: f.Port}
	dispatch, guard, lessons := nodePorts, nodePortAllowed, learnNodePorts
	if f.Kind != plan.NodePort {
		key.addr = f.Addr
		dispatch, guard, lessons = services, allowed, learn
	}
	fp.add(key, dispatch, value{class: fp.ledger.class(objectID{c.family, chainObject, c.chain()})})
	for _, p := range minimal(f.AllowFrom, svc.Family) {
		e := key
		e.peer, e.peerBits = p.Addr(), uint8(p.Bits())
		fp.add(e, guard, value{})
	}
	var used [2]bool
	for _, p := range c.picks {
		used[p.Pool] = used[p.Pool] || p.count > 0
	}
	for pool, list := range svc.Pools {
		if !used[pool] {
			continue
		}
		for i, ep := range list {
			e := element{family: key.family, addr: key.addr, port: key.port, slot: uint32(i + pool*localSlots)}
			fp.add(e, endpointSet(key.proto, c.nodePort), value{endpoint: ep.Addr})
		}
	}
	if aff != nil {
		fp.addLessons(svc, aff, key, lessons)
	}
	if f.Kind == plan.ClusterIP {
		fp.shared = append(fp.shared, element{family: svc.Family, set: clusterIPs, addr: f.Addr})
	}
}

// addLessons adds the way from a frontend and an endpoint to the chain that notes the client. An
// endpoint that is in both pools appears once.
func (fp *footprint) addLessons(svc *plan.ServicePort, aff *affinity, key element, set setID) {
	for pool, list := range svc.Pools {
		for _, ep := range list {
			chain, maps := aff.lesson(svc, ep)
			if pool == int(plan.LocalPool) && len(maps) == 2 {
				continue
			}
			e := key
			e.peer, e.peerPort = ep.Addr.Addr(), ep.Addr.Port()
			fp.add(e, set, value{chain: chain})
		}
	}
}

// addClass adds the chain of a class, behind the one that it hands packets to.
func (fp *footprint) addClass(c *class) {
	if c.affinity != nil {
		plain := c.plain()
		fp.addClass(&plain)
	}
	id := objectID{c.family, chainObject, c.chain()}
	if !slices.ContainsFunc(fp.objects, func(o object) bool { return o.objectID == id }) {
		fp.ledger.class(id) // each chain has its number, led to or not: another ServicePort may need it
		fp.objects = append(fp.objects, object{objectID: id, class: c})
	}
}

func (fp *footprint) add(e element, set setID, v value) {
	e.set = set
	fp.entries = append(fp.entries, entry{e, v})
}

// minimal gives the prefixes of the family without those that lie in another one: the kernel refuses
// ranges that overlap.
func minimal(prefixes []netip.Prefix, family plan.Family) []netip.Prefix {
	var out []netip.Prefix
	for _, p := range prefixes {
		if plan.FamilyOf(p.Addr()) == family {
			out = append(out, p.Masked())
		}
	}
	slices.SortFunc(out, func(a, b netip.Prefix) int {
		if c := a.Addr().Compare(b.Addr()); c != 0 {
			return c
		}
		return a.Bits() - b.Bits()
	})
	kept := out[:0]
	for _, p := range out {
		if len(kept) == 0 || !kept[len(kept)-1].Overlaps(p) {
			kept = append(kept, p)
		}
	}
	return kept
}
