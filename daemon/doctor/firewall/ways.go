package firewall

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"edgeway/proxiers/plan"
)

// Host is what must be known of the host beside the plan.
type Host interface {
	// LinkOf gives the link that has this address of the host; empty: it is not known.
	LinkOf(addr netip.Addr) string
	// Route gives the link by which packets of the host leave for an address, and their source; empty and invalid:
	// there is no route.
	Route(to netip.Addr) (link string, source netip.Addr)
}

// anyLink stands for a link that is not known.
const anyLink = "?"

// maxWays bounds the ways that are tried, one of each sort, and maxRoutes the questions to the kernel that finding them
// takes, of which each look repeats all: 2 ms.
const (
	maxWays   = 200
	maxRoutes = 128
)

// way is a connection that must work: from a client by a frontend to an endpoint, and back.
type way struct {
	family  plan.Family
	origin  plan.Origin
	service plan.ServicePortName // with the protocol; of a health check without a port's name
	// client is one of the host or of a pod; invalid: any other one.
	client netip.Addr
	// in is the link by which packets of the client come; empty: the host makes them.
	in string
	// front is the destination that the client knows. endpoint is what it is translated to; invalid: the host itself
	// answers there.
	front, endpoint netip.AddrPort
	// out is the link to the endpoint. toHost says that the endpoint is the host itself.
	out    string
	toHost bool
	// snat says that the endpoint sees the host's address.
	snat bool
	// optional says that clients need a route by this host that others have by choice, if at all.
	optional bool
}

// String says which connection it is.
func (w *way) String() string {
	from := map[plan.Origin]string{
		plan.FromHost: "this host", plan.FromPod: "pods",
		plan.FromOutside: "outside",
	}[w.origin]
	if w.in != "" && w.in != anyLink {
		from += " by " + w.in
	}
	if !w.endpoint.IsValid() {
		return fmt.Sprintf("from %s to the health check of %s/%s (%s)", from, w.service.Namespace, w.service.Name,
			w.front)
	}
	return fmt.Sprintf("from %s to %s (%s, endpoint %s)", from, w.service, w.front, w.endpoint)
}

// sort is what ways are told apart by: of several of one sort one is tried.
type sort struct {
	way  way // without addresses and names
	kind plan.FrontendKind
}

// survey is one way of each sort, and what the host was asked to find them.
type survey struct {
	ways   []*way
	routes map[netip.Addr]route
	links  map[netip.Addr]string
}

type route struct {
	link   string
	source netip.Addr
}

// holds says that the host still gives the same answers.
func (s *survey) holds(h Host) bool {
	for to, known := range s.routes {
		if link, source := h.Route(to); (route{link, source}) != known {
			return false
		}
	}
	for a, known := range s.links {
		if h.LinkOf(a) != known {
			return false
		}
	}
	return true
}

// surveyor makes a survey.
type surveyor struct {
	survey
	plan *plan.Plan
	host Host
	seen map[sort]bool
	// entries are the links by which clients of other hosts come.
	entries map[plan.Family][]string
}

func newSurvey(p *plan.Plan, host Host) survey {
	s := &surveyor{plan: p, host: host, seen: map[sort]bool{}, entries: map[plan.Family][]string{}}
	s.routes, s.links = map[netip.Addr]route{}, map[netip.Addr]string{}
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		s.entries[f] = s.entriesOf(f)
	}
	for _, svc := range p.Services {
		if len(s.ways) < maxWays && len(s.routes) < maxRoutes {
			s.servicePort(svc)
		}
	}
	s.healthChecks()
	return s.survey
}

// elsewhere are addresses of no host, for the question which route leads to the rest of the world.
var elsewhere = map[plan.Family]string{plan.IPv4: "198.51.100.1", plan.IPv6: "2001:db8::1"}

// entriesOf are the links that have an address for NodePorts, and that of the default route.
func (s *surveyor) entriesOf(f plan.Family) []string {
	var out []string
	for _, a := range s.plan.Node.NodePortAddrs {
		if plan.FamilyOf(a) == f {
			s.links[a] = s.host.LinkOf(a)
			out = append(out, s.links[a])
		}
	}
	out = append(out, s.route(netip.MustParseAddr(elsewhere[f])).link)
	slices.Sort(out)
	out = slices.DeleteFunc(slices.Compact(out), func(l string) bool { return l == "" || l == loopback })
	if len(out) == 0 {
		return []string{anyLink}
	}
	return out
}

func (s *surveyor) route(to netip.Addr) route {
	r, ok := s.routes[to]
	if !ok {
		r.link, r.source = s.host.Route(to)
		s.routes[to] = r
	}
	return r
}

func (s *surveyor) servicePort(svc *plan.ServicePort) {
	var ends [len(svc.Pools)][]way
	for pool, endpoints := range svc.Pools {
		ends[pool] = s.reached(endpoints)
	}
	for i := range svc.Frontends {
		f := &svc.Frontends[i]
		a := f.Addr
		if f.Kind == plan.NodePort {
			a = s.nodePortAddr(svc.Family)
		}
		if !a.IsValid() || f.AllowFrom != nil && len(f.AllowFrom) == 0 {
			continue // nowhere, or from nowhere
		}
		for origin, r := range f.Routes {
			if r.Verdict != plan.Forward {
				continue
			}
			for _, w := range ends[r.Pool] {
				w.family, w.origin, w.service, w.snat = svc.Family, plan.Origin(origin), svc.Name, r.SNAT
				w.front = netip.AddrPortFrom(a, f.Port)
				w.optional = w.origin == plan.FromOutside && !s.held(a)
				s.clients(w, f)
			}
		}
	}
}

// reached gives the ends of ways to one endpoint for each link, of the first ones. Where there is no way it is no
// matter of rules.
func (s *surveyor) reached(list []plan.Endpoint) (out []way) {
	const most = 16
	for _, ep := range list[:min(len(list), most)] {
		w := way{endpoint: ep.Addr, toHost: s.held(ep.Addr.Addr())}
		if !w.toHost {
			w.out = s.route(ep.Addr.Addr()).link
		}
		if (w.toHost || w.out != "") && !slices.ContainsFunc(out, func(o way) bool { return o.out == w.out }) {
			out = append(out, w)
		}
	}
	return out
}

// nodePortAddr gives one for all: a way by another one would be of the same sort.
func (s *surveyor) nodePortAddr(f plan.Family) netip.Addr {
	i := slices.IndexFunc(s.plan.Node.NodePortAddrs, func(a netip.Addr) bool { return plan.FamilyOf(a) == f })
	if i < 0 {
		return netip.Addr{}
	}
	return s.plan.Node.NodePortAddrs[i]
}

func (s *surveyor) held(a netip.Addr) bool {
	_, found := slices.BinarySearchFunc(s.plan.Node.HostAddrs, a, netip.Addr.Compare)
	return found
}

// clients adds the way from each sort of client of its origin that the frontend allows.
func (s *surveyor) clients(w way, f *plan.Frontend) {
	allowed := func() bool {
		return f.AllowFrom == nil ||
			slices.ContainsFunc(f.AllowFrom, func(p netip.Prefix) bool { return p.Contains(w.client) })
	}
	switch w.origin {
	case plan.FromHost:
		if w.client = s.route(w.endpoint.Addr()).source; w.client.IsValid() && allowed() {
			s.add(w, f.Kind)
		}
	case plan.FromPod:
		pods := plan.OfFamily(s.plan.Node.PodSources, w.family)
		if len(pods) == 0 {
			return
		}
		w.client = pods[0].Addr().Next()
		if w.in = cmp.Or(s.route(w.client).link, anyLink); allowed() {
			s.add(w, f.Kind)
		}
	default:
		if f.AllowFrom != nil {
			w.client = f.AllowFrom[0].Addr()
		}
		for _, link := range s.entries[w.family] {
			w.in = link
			s.add(w, f.Kind)
		}
	}
}

func (s *surveyor) add(w way, kind plan.FrontendKind) {
	of := sort{w, kind} // with the ports of servers: firewalls open ports
	of.way.client, of.way.service = netip.Addr{}, plan.ServicePortName{Protocol: w.service.Protocol}
	of.way.front, of.way.endpoint = netip.AddrPort{}, netip.AddrPortFrom(netip.Addr{}, w.endpoint.Port())
	if !w.endpoint.IsValid() {
		of.way.front = netip.AddrPortFrom(netip.Addr{}, w.front.Port())
	}
	if !s.seen[of] {
		s.seen[of] = true
		own := w // most ways are not kept
		s.ways = append(s.ways, &own)
	}
}

// healthChecks adds the ways of load balancers to what the host itself answers.
func (s *surveyor) healthChecks() {
	for _, h := range s.plan.HealthChecks {
		for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
			if a := s.nodePortAddr(f); a.IsValid() && len(s.ways) < maxWays {
				s.clients(way{
					family: f, origin: plan.FromOutside, toHost: true, front: netip.AddrPortFrom(a, h.Port),
					service: plan.ServicePortName{Namespace: h.Namespace, Name: h.Name, Protocol: plan.TCP},
				}, &plan.Frontend{Kind: plan.NodePort})
			}
		}
	}
}
