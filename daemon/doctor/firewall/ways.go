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
// takes.
const (
	maxWays   = 200
	maxRoutes = 500
)

// way is a connection that must work: from a client by a frontend to an endpoint, and back.
type way struct {
	family   plan.Family
	protocol plan.Protocol
	origin   plan.Origin
	service  string
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
	from := map[plan.Origin]string{plan.FromHost: "this host", plan.FromPod: "pods", plan.FromOutside: "outside"}[w.origin]
	if w.in != "" && w.in != anyLink {
		from += " by " + w.in
	}
	if !w.endpoint.IsValid() {
		return fmt.Sprintf("from %s to the health check of %s (%s)", from, w.service, w.front)
	}
	return fmt.Sprintf("from %s to %s (%s, endpoint %s)", from, w.service, w.front, w.endpoint)
}

// sort is what ways are told apart by: of several of one sort one is tried.
type sort struct {
	family                         plan.Family
	protocol                       plan.Protocol
	origin                         plan.Origin
	kind                           plan.FrontendKind
	in, out                        string
	port                           uint16 // of the server: firewalls open ports
	toHost, snat, optional, health bool
}

// surveyor finds the ways of a plan.
type surveyor struct {
	plan *plan.Plan
	host Host
	seen map[sort]bool
	ways []*way
	// routes are those that the host was asked for.
	routes map[netip.Addr]route
	// entries are the links by which clients of other hosts come.
	entries map[plan.Family][]string
}

type route struct {
	link   string
	source netip.Addr
}

// survey gives one way of each sort.
func survey(p *plan.Plan, host Host) []*way {
	s := &surveyor{plan: p, host: host, seen: map[sort]bool{}, routes: map[netip.Addr]route{}, entries: map[plan.Family][]string{}}
	for _, f := range []plan.Family{plan.IPv4, plan.IPv6} {
		s.entries[f] = s.links(f)
	}
	for _, svc := range p.Services {
		for i := range svc.Frontends {
			if len(s.ways) < maxWays && len(s.routes) < maxRoutes {
				s.frontend(svc, &svc.Frontends[i])
			}
		}
	}
	s.healthChecks()
	return s.ways
}

// elsewhere are addresses of no host, for the question which route leads to the rest of the world.
var elsewhere = map[plan.Family]string{plan.IPv4: "198.51.100.1", plan.IPv6: "2001:db8::1"}

// links are those that have an address for NodePorts, and that of the default route.
func (s *surveyor) links(f plan.Family) []string {
	var out []string
	for _, a := range ofFamily(s.plan.Node.NodePortAddrs, f) {
		out = append(out, s.host.LinkOf(a))
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

func (s *surveyor) frontend(svc *plan.ServicePort, f *plan.Frontend) {
	fronts := []netip.Addr{f.Addr}
	if f.Kind == plan.NodePort {
		fronts = ofFamily(s.plan.Node.NodePortAddrs, svc.Family)
	}
	if f.AllowFrom != nil && len(f.AllowFrom) == 0 {
		return // from nowhere
	}
	for _, a := range fronts {
		for origin, r := range f.Routes {
			if r.Verdict != plan.Forward {
				continue
			}
			for _, ep := range oneOfEach(svc.Pools[r.Pool], s.endpointLink) {
				w := way{
					family: svc.Family, protocol: svc.Name.Protocol, origin: plan.Origin(origin), service: svc.Name.String(),
					front: netip.AddrPortFrom(a, f.Port), endpoint: ep.Addr, snat: r.SNAT,
					optional: plan.Origin(origin) == plan.FromOutside && !slices.Contains(s.plan.Node.HostAddrs, a),
				}
				if s.endpoint(&w) {
					s.clients(w, f)
				}
			}
		}
	}
}

// endpoint finds the link; false: there is no way, which is no matter of rules.
func (s *surveyor) endpoint(w *way) bool {
	if w.toHost = slices.Contains(s.plan.Node.HostAddrs, w.endpoint.Addr()); !w.toHost {
		w.out = s.route(w.endpoint.Addr()).link
	}
	return w.toHost || w.out != ""
}

func (s *surveyor) endpointLink(ep plan.Endpoint) string { return s.route(ep.Addr.Addr()).link }

// oneOfEach gives one endpoint for each link, of the first ones.
func oneOfEach(list []plan.Endpoint, link func(plan.Endpoint) string) (out []plan.Endpoint) {
	const most = 16
	seen := map[string]bool{}
	for _, ep := range list[:min(len(list), most)] {
		if l := link(ep); !seen[l] {
			seen[l] = true
			out = append(out, ep)
		}
	}
	return out
}

// clients adds the way from each sort of client of its origin that the frontend allows.
func (s *surveyor) clients(w way, f *plan.Frontend) {
	allowed := func() bool {
		return f.AllowFrom == nil || slices.ContainsFunc(f.AllowFrom, func(p netip.Prefix) bool { return p.Contains(w.client) })
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
	of := sort{w.family, w.protocol, w.origin, kind, w.in, w.out, w.endpoint.Port(), w.toHost, w.snat, w.optional, !w.endpoint.IsValid()}
	if of.health {
		of.port = w.front.Port()
	}
	if !s.seen[of] {
		s.seen[of] = true
		s.ways = append(s.ways, &w)
	}
}

// healthChecks adds the ways of load balancers to what the host itself answers.
func (s *surveyor) healthChecks() {
	for _, h := range s.plan.HealthChecks {
		for _, a := range s.plan.Node.NodePortAddrs {
			if len(s.ways) >= maxWays {
				return
			}
			w := way{
				family: plan.FamilyOf(a), protocol: plan.TCP, origin: plan.FromOutside, toHost: true,
				service: h.Namespace + "/" + h.Name, front: netip.AddrPortFrom(a, h.Port),
			}
			s.clients(w, &plan.Frontend{Kind: plan.NodePort})
		}
	}
}

func ofFamily(addrs []netip.Addr, f plan.Family) (out []netip.Addr) {
	for _, a := range addrs {
		if plan.FamilyOf(a) == f {
			out = append(out, a)
		}
	}
	return out
}
