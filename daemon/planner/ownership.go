package planner

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"edgeway/daemon/source"
	"edgeway/daemon/tracker"
	"edgeway/proxiers/plan"
)

// exclusivePort identifies a port that only one Service can own: a port at an address or, if addr is the zero Addr, a
// host port (NodePort or healthCheckNodePort).
type exclusivePort struct {
	addr     netip.Addr
	protocol plan.Protocol
	port     uint16
}

// String formats the port as "192.0.2.1:80/TCP" or "port 30080/TCP".
func (c exclusivePort) String() string {
	if !c.addr.IsValid() {
		return fmt.Sprintf("port %d/%s", c.port, c.protocol)
	}
	return fmt.Sprintf("%s/%s", netip.AddrPortFrom(c.addr, c.port), c.protocol)
}

// request is a Service's request for an exclusivePort. kind is the kind of the port's address, or NodePort for a host
// port.
type request struct {
	service *source.Service
	kind    plan.FrontendKind
}

// ranks maps each kind of address to its rank, where 0 is the highest rank. A ClusterIP comes first, because the API
// server allocates ClusterIPs. If external IPs came first, a tenant could claim an address as an external IP before the
// API server allocates it as a ClusterIP. A load-balancer address comes before an external IP, because a controller
// assigns load-balancer addresses. The order also ensures that a Service's source ranges apply to an address that the
// Service lists as both an external IP and a load-balancer address.
var ranks = [...]int{plan.ClusterIP: 0, plan.LoadBalancerIP: 1, plan.ExternalIP: 2, plan.NodePort: 0}

func (b request) rank() int { return ranks[b.kind] }

// ownership records the owner of each port. A Service requests each port at most once.
//
// A request for a higher-ranking kind of address always takes precedence. Among requests for the same kind of address,
// the owner keeps a port until the owner's request is removed. A port that never had an owner, or whose owner's request
// was removed, is open until the next call to closePorts. The Service whose request for an open port has the highest
// precedence becomes the owner. After closePorts, a request from an older Service does not change the owner.
type ownership struct {
	owner map[exclusivePort]request
	// rivals maps each port to the losing requests for it. No value is empty.
	rivals map[exclusivePort]*rivals
	// openPorts maps each open port to the name of its last owner, or to an empty name if the port had no owner. If
	// allOpen is true, all ports are open.
	openPorts map[exclusivePort]tracker.Name
	allOpen   bool
	limit     int
	// contestedCache caches the result of contestedPorts, or is nil if contestedPorts must recompute it.
	contestedCache []source.Holding
}

// newOwnership returns an ownership in which all ports are open.
func newOwnership(limit int) ownership {
	return ownership{
		owner: map[exclusivePort]request{}, rivals: map[exclusivePort]*rivals{}, allOpen: true, limit: limit,
	}
}

func (o *ownership) add(c exclusivePort, b request) {
	owner := o.owner[c]
	holder, open := o.openPorts[c]
	switch {
	case owner.service == nil:
		o.owner[c] = b
		if !o.allOpen {
			o.openPorts[c] = holder
		}
		return
	case precedes(b, owner, holder, open || o.allOpen):
		if !open && !o.allOpen {
			o.openPorts[c] = nameOf(owner.service)
		}
		o.owner[c], b = b, owner
	}
	o.addRival(c, b)
}

func (o *ownership) addRival(c exclusivePort, b request) {
	r := o.rivals[c]
	if r == nil {
		r = &rivals{}
		o.rivals[c] = r
	}
	r.add(b, o.limit)
	o.contestedCache = nil
}

// remove reverts add for the Service s. If s owns the port c, remove also marks the port as open.
func (o *ownership) remove(c exclusivePort, s *source.Service) {
	r := o.rivals[c]
	if r != nil {
		o.contestedCache = nil
	}
	if o.owner[c].service != s {
		r.remove(s)
	} else {
		if _, open := o.openPorts[c]; !open {
			o.openPorts[c] = nameOf(s)
		}
		delete(o.owner, c)
		if r != nil && len(r.requests) > 0 {
			o.owner[c] = r.requests[0]
			r.requests = slices.Delete(r.requests, 0, 1)
		}
	}
	if r.empty() {
		delete(o.rivals, c)
	}
}

// restore makes b's Service the owner of port c again, unless the current owner's request is for a higher-ranking kind
// of address.
func (o *ownership) restore(c exclusivePort, b request) {
	owner, r := o.owner[c], o.rivals[c]
	if owner.service == b.service || owner.rank() < b.rank() || r == nil {
		return
	}
	r.remove(b.service)
	o.owner[c] = b
	o.addRival(c, owner)
}

// uncertainPorts returns the open ports that have a new owner or no owner, and whose list of rivals is incomplete. A
// request missing from the list may belong to the rightful owner, so the Planner must collect all requests for the port
// again.
func (o *ownership) uncertainPorts() map[exclusivePort]struct{} {
	out := map[exclusivePort]struct{}{}
	for c, holder := range o.openPorts {
		if r := o.rivals[c]; r == nil || r.otherCount == 0 {
			continue
		}
		if owner := o.owner[c].service; owner == nil || nameOf(owner) != holder {
			out[c] = struct{}{}
		}
	}
	return out
}

// forget removes all requests for an open port.
func (o *ownership) forget(c exclusivePort) {
	delete(o.owner, c)
	delete(o.rivals, c)
	o.contestedCache = nil
}

// closePorts closes all ports. For each port with a new owner, closePorts returns that owner and the Services with
// stored requests for the port. Each Service appears in the result only once.
func (o *ownership) closePorts() (disturbed []tracker.Name) {
	found := map[*source.Service]struct{}{}
	for c, holder := range o.openPorts {
		owner := o.owner[c].service
		if owner == nil || nameOf(owner) == holder {
			continue
		}
		found[owner] = struct{}{}
		if r := o.rivals[c]; r != nil {
			for _, b := range r.requests {
				found[b.service] = struct{}{}
			}
		}
	}
	o.openPorts, o.allOpen = map[exclusivePort]tracker.Name{}, false
	for s := range found {
		disturbed = append(disturbed, nameOf(s))
	}
	return disturbed
}

// contestedPorts returns the ports that several Services request, and the owner of each port. Callers must not modify
// the result.
func (o *ownership) contestedPorts() []source.Holding {
	if o.contestedCache != nil || len(o.rivals) == 0 {
		return o.contestedCache
	}
	o.contestedCache = make([]source.Holding, 0, len(o.rivals))
	for c := range maps.Keys(o.rivals) {
		owner := o.owner[c].service
		name := nameOf(owner)
		o.contestedCache = append(o.contestedCache, source.Holding{
			Addr: c.addr, Protocol: c.protocol, Port: c.port, Namespace: name.Namespace, Name: name.Name,
		})
	}
	slices.SortFunc(o.contestedCache, source.Holding.Compare)
	return o.contestedCache
}

// precedes reports whether request a takes precedence over request b for the same port. If the port is open, holder is
// its last owner. If the port is not open, b is the current owner's request.
func precedes(a, b request, holder tracker.Name, open bool) bool {
	switch {
	case a.rank() != b.rank():
		return a.rank() < b.rank()
	case !open || holder == nameOf(b.service):
		return false
	case holder == nameOf(a.service):
		return true
	}
	return comparePrecedence(a.service, b.service) < 0
}

// compareRequests orders the requests for a port that has no owner.
func compareRequests(a, b request) int {
	return cmp.Or(a.rank()-b.rank(), comparePrecedence(a.service, b.service))
}

// comparePrecedence orders Services by age, the oldest first, then by UID and name. A Service without a creation time,
// such as a Service from a manifest, counts as the youngest.
func comparePrecedence(a, b *source.Service) int {
	age := a.Created.Compare(b.Created)
	if a.Created.IsZero() || b.Created.IsZero() {
		age = -age
	}
	return cmp.Or(age, strings.Compare(a.UID, b.UID), nameOf(a).Compare(nameOf(b)))
}

// maxRivals is the maximum number of losing requests that a Planner stores for each port. Without a limit, 300 Services
// of 6 kB each that request the same 15,000 ports would need 4.5 million entries. If the next owner may be missing from
// the stored requests, Planner.recount collects the requests from the snapshot.
const maxRivals = 16

// rivals holds the losing requests for a port. The requests field holds the losing requests with the highest
// precedence, highest first. otherCount is the number of other losing requests.
type rivals struct {
	requests   []request
	otherCount int
}

// add stores the request b. If b comes after all stored requests and otherCount is not 0, add only increments
// otherCount, because a request that is not stored may precede b.
func (r *rivals) add(b request, limit int) {
	i, _ := slices.BinarySearchFunc(r.requests, b, compareRequests)
	if i == len(r.requests) && (r.otherCount > 0 || i >= limit) {
		r.otherCount++
		return
	}
	r.requests = slices.Insert(r.requests, i, b)
	if len(r.requests) > limit {
		r.requests = slices.Delete(r.requests, limit, len(r.requests))
		r.otherCount++
	}
}

// remove accepts a nil receiver.
func (r *rivals) remove(s *source.Service) {
	if r == nil {
		return
	}
	if i := slices.IndexFunc(r.requests, func(b request) bool { return b.service == s }); i >= 0 {
		r.requests = slices.Delete(r.requests, i, i+1)
	} else if r.otherCount > 0 {
		r.otherCount--
	}
}

func (r *rivals) empty() bool { return r == nil || len(r.requests) == 0 && r.otherCount == 0 }

// recount collects all requests for the ports in claims again, and returns the Services that made the requests.
func (p *Planner) recount(claims map[exclusivePort]struct{}) (bidders []tracker.Name) {
	if len(claims) == 0 {
		return nil
	}
	for c := range claims {
		p.owners.forget(c)
	}
	for _, svc := range p.snap.Services {
		bids := false
		p.eachRequest(svc.Spec, func(c exclusivePort, b request) {
			if _, is := claims[c]; is {
				p.owners.add(c, b)
				bids = true
			}
		})
		if bids {
			bidders = append(bidders, svc.Name())
		}
	}
	return bidders
}

// restore returns contested ports to the Services that owned them when the previous process exited. An owner in the
// previous plan takes precedence over a saved owner. After a reload, the previous plan contains only the frontends that
// the kernel accepted, so the saved owners keep the ports of the frontends that the kernel rejected.
func (p *Planner) restore(prev *plan.Plan) {
	if len(p.owners.rivals) == 0 {
		return
	}
	saved, planned := ownedPorts{}, ownedPorts{}
	if p.opts.SavedOwners != nil {
		for _, h := range p.opts.SavedOwners() {
			saved.note(&p.owners,
				exclusivePort{h.Addr, h.Protocol, h.Port}, tracker.Name{Namespace: h.Namespace, Name: h.Name})
		}
	}
	for _, sp := range prev.Services {
		name := tracker.Name{Namespace: sp.Name.Namespace, Name: sp.Name.Name}
		for i := range sp.Frontends {
			f := &sp.Frontends[i]
			planned.note(&p.owners, exclusivePort{f.Addr, sp.Name.Protocol, f.Port}, name)
		}
	}
	for _, h := range prev.HealthChecks {
		planned.note(&p.owners, exclusivePort{protocol: plan.TCP, port: h.Port},
			tracker.Name{Namespace: h.Namespace, Name: h.Name})
	}
	p.returnPorts(saved)
	p.returnPorts(planned)
}

// ownedPorts maps each Service to the contested ports that it previously owned.
type ownedPorts map[tracker.Name]map[exclusivePort]struct{}

func (h ownedPorts) note(o *ownership, c exclusivePort, name tracker.Name) {
	if o.rivals[c] == nil {
		return
	}
	if h[name] == nil {
		h[name] = map[exclusivePort]struct{}{}
	}
	h[name][c] = struct{}{}
}

// returnPorts returns each port to its previous owner if that Service still requests the port.
func (p *Planner) returnPorts(had ownedPorts) {
	for name, claims := range had {
		if s := p.spec(name); s != nil {
			p.eachRequest(s, func(c exclusivePort, b request) {
				if _, is := claims[c]; is {
					p.owners.restore(c, b)
				}
			})
		}
	}
}
